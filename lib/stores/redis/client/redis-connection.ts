import { performance } from 'node:perf_hooks';
import type { NodeError } from '../../../api/errors.js';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { NEEDS_PASSWORD, nodeError } from './advice.js';
import type { ConnectionFailure, RedisClient } from './redis-client.js';

/** How long after a command was due, or while it is made, a silent connection counts as half-open, in milliseconds. */
const HALF_OPEN_AFTER_MS = 4_000;

/** How often, at most, the connection to a server that has become a replica is made anew, in milliseconds. */
const RENEW_EVERY_MS = 1_000;

/** Refusals that last until the setup is changed. */
const REFUSALS: Record<NonNullable<ConnectionFailure['refused']>, { problem: string; advice: string }> = {
  credentials: { problem: 'it refused the credentials', advice: 'Correct username and password.' },
  login: { problem: 'it needs a password, and none was given', advice: NEEDS_PASSWORD },
  database: {
    problem: 'it refused the database',
    advice: 'Give its user the right +select, or name a database that it has.',
  },
};

/** One client, made here or passed by the user, and whether it can be used now. */
export class RedisConnection {
  readonly #waiting = new Set<() => void>();
  /** The waiters at the start of the application, which a refusal answers. */
  readonly #starting = new Set<() => void>();
  #wasReady: boolean;
  /** How many attempts to connect have failed since it was last ready. */
  #failures = 0;
  /** Since when it is not ready, although it should be. */
  #downSince?: number;
  #readyAt = performance.now();
  #renewedAt = -Infinity;
  /** Runs from when the server has accepted a connection until it is ready. */
  #handshake?: NodeJS.Timeout;
  #problem?: NodeError;
  /** Called each time that the connection was made, before anything that waited for it is sent. */
  onReady?: () => void;

  /** `host:port`, or the path of a socket: never the URL, which may hold a password. */
  readonly name: string;
  /** The name in `CLIENT LIST` of further connections that are made like this one. */
  readonly clientName: string;

  /**
   * @param clientName its name in `CLIENT LIST`, unless the user gave an owned client another one
   * @param commandTimeoutMs how long without a connection until the server counts as down, in milliseconds
   */
  constructor(
    readonly client: RedisClient,
    clientName: string,
    private readonly commandTimeoutMs: number,
  ) {
    this.name = client.name;
    this.clientName = (client.isOwned && client.connectionName) || clientName;
    this.#wasReady = this.isReady;
    client.listen((change) => {
      if (change === 'accepted') this.#expectAnswers();
      else if (change === 'ready') this.#becomeReady();
      else if (change === 'closed') this.#noteClose();
      else if (change === 'ended') this.#wake();
      else if (this.#refusal) for (const waiter of this.#starting) waiter();
    });
  }

  get isReady(): boolean {
    return this.client.isReady;
  }

  /** Stands for the connection: another one each time that it is made. */
  get generation(): unknown {
    return this.client.generation;
  }

  /**
   * Whether waiting for it is useless: an attempt to reconnect has failed, or took too long. A shorter break is ridden out.
   * Behind a proxy that accepts connections for a dead server this is known after `commandTimeoutMs`.
   */
  get isKnownDown(): boolean {
    if (this.isReady) return false;
    if (this.client.isEnded || this.#failures > 0) return true;
    return this.#downSince !== undefined && performance.now() - this.#downSince >= this.commandTimeoutMs;
  }

  /** The problem while it is not ready. One error object until it changes, as every call asks for it meanwhile. */
  get problem(): NodeError {
    const { failure, status } = this.client;
    // What Redis says where nobody has logged in is about HELLO, which no user of this library writes.
    const cause = failure ? `: ${failure.refused === 'login' ? 'NOAUTH' : failure.problem}` : '';
    const problem = `${this.#refusal?.problem ?? `not connected (${status})`}${cause}`;
    if (this.#problem?.problem !== problem) this.#problem = nodeError(this.name, problem, this.#advice);
    return this.#problem;
  }

  get #advice(): string | undefined {
    if (this.#refusal || this.client.isOwned || !this.client.isEnded) return this.#refusal?.advice;
    return 'The client was closed, by quit, disconnect, close or destroy, and does not reconnect: hand in one that stays open.';
  }

  get #refusal(): { problem: string; advice: string } | undefined {
    const refused = this.client.failure?.refused;
    return refused && REFUSALS[refused];
  }

  /**
   * Waits until commands can be sent. Starts the connection of a lazy client, as a command would.
   * @param when at the `start` of the application the server may be starting, too: it is waited for even when it is known to
   *   be down, but a refusal ends the wait; later a refusal may be about to change
   * @returns undefined when it is ready; the problem after `timeoutMs`, or at once when waiting is useless
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    if (this.isReady) return undefined;
    this.client.connect();
    this.#downSince ??= performance.now();
    const isHopeless = when === 'start' ? this.client.isEnded || this.#refusal !== undefined : this.isKnownDown;
    if (!isHopeless && timeoutMs > 0) await this.#change(timeoutMs, when);
    return this.isReady ? undefined : this.problem;
  }

  /**
   * Has the connection made anew if a command that is overdue stays so: the client's own `socketTimeout` would set and clear
   * a timer for each command. Clients of the user are left alone.
   * @param isOpen whether the command is still not answered
   */
  suspect(isOpen: () => boolean): void {
    const { isOwned, generation } = this.client;
    if (!isOwned || generation === undefined) return;
    const giveUp = () => {
      if (generation === this.client.generation && isOpen()) this.client.drop('it does not answer');
    };
    outsideOfCalls(() => setTimeout(giveUp, HALF_OPEN_AFTER_MS)).unref();
  }

  /**
   * Has the connection made anew, because its server has become a replica: the address may lead to the primary by now,
   * while the old connection would stay with the replica for ever. A replica in a Cluster sends the client on to its master, but not on a
   * connection where an earlier READONLY still stands: a busy server refuses the READWRITE that ends it.
   * @returns advice for the user
   */
  leaveReplica(): string {
    const isDue = this.isReady && performance.now() - Math.max(this.#readyAt, this.#renewedAt) >= RENEW_EVERY_MS;
    if (this.client.topology.isCluster) {
      if (isDue) this.#renew();
      return 'A node that the client takes for a master is a replica. The client asks anew which master has which slot.';
    }
    if (!this.client.isOwned) {
      return 'Its server is a replica, and the client stays connected to it: call client.disconnect(true), which makes it reconnect, or give the module a URL or options.';
    }
    if (isDue) this.#renew();
    return 'Its server is a replica: check that the address leads to the primary. The module reconnects every second until it does.';
  }

  #renew(): void {
    this.#renewedAt = performance.now();
    this.client.drop('its server is a replica');
  }

  /** Closes the client if it is owned. No command may be in flight any more. */
  close(): void {
    clearTimeout(this.#handshake);
    this.onReady = undefined;
    this.client.close();
    this.#wake();
  }

  /**
   * Has a connection made anew whose server has accepted it, and then says nothing: behind it may be a proxy whose server is
   * gone, or the network may have broken. The client itself would wait for as long as the connection stays open.
   */
  #expectAnswers(): void {
    const { generation, received } = this.client;
    if (generation === undefined) return; // a Cluster, whose nodes have connections of their own
    const look = () => {
      if (generation !== this.client.generation || this.isReady) return;
      if (this.client.received > received) this.#expectAnswers();
      else this.client.drop('it does not answer');
    };
    clearTimeout(this.#handshake);
    this.#handshake = outsideOfCalls(() => setTimeout(look, HALF_OPEN_AFTER_MS)).unref();
  }

  #becomeReady(): void {
    clearTimeout(this.#handshake);
    this.#wasReady = true;
    this.#readyAt = performance.now();
    this.#failures = 0;
    this.#downSince = undefined;
    this.onReady?.(); // before the calls that wait for it
    this.#wake();
  }

  #noteClose(): void {
    clearTimeout(this.#handshake);
    this.#downSince ??= performance.now();
    if (this.#wasReady) this.#wasReady = false;
    else this.#failures++;
  }

  #wake(): void {
    for (const waiter of this.#waiting) waiter();
  }

  #change(timeoutMs: number, when?: 'start'): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        this.#starting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      this.#waiting.add(done);
      if (when === 'start') this.#starting.add(done);
    });
  }
}
