import { performance } from 'node:perf_hooks';
import type { NodeError } from '../../../api/errors.js';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { NEEDS_PASSWORD, nodeError } from './advice.js';
import type { ConnectionFailure, RedisClient } from './redis-client.js';

/** How long a connection may be silent, after a command was overdue or while connecting, before it counts as half-open, in milliseconds. */
const HALF_OPEN_AFTER_MS = 4_000;

/** The minimum time between two reconnections from a server that has become a replica, in milliseconds. */
const RENEW_EVERY_MS = 1_000;

/** Refusals that last until the configuration changes. */
const REFUSALS: Record<NonNullable<ConnectionFailure['refused']>, { problem: string; advice: string }> = {
  credentials: { problem: 'it refused the credentials', advice: 'Correct the user name and the password.' },
  login: { problem: 'it needs a password, and none was given', advice: NEEDS_PASSWORD },
  database: {
    problem: 'it refused the database',
    advice: 'Give its user the right +select, or name a database that it has.',
  },
};

/** A client, created here or passed by the user, and its state. */
export class RedisConnection {
  readonly #waiting = new Set<() => void>();
  /** The waiters during the start of the application. A refusal ends their wait. */
  readonly #starting = new Set<() => void>();
  #wasReady: boolean;
  /** The number of failed attempts to connect since it was last ready. */
  #failures = 0;
  /** When it ceased to be ready, if it should be ready. */
  #downSince?: number;
  #readyAt = performance.now();
  #renewedAt = -Infinity;
  /** Runs while an accepted connection is not yet ready. */
  #handshake?: NodeJS.Timeout;
  #problem?: NodeError;
  /** Called after each connection, before waiting commands are sent. */
  onReady?: () => void;

  /** `host:port`, or the path of a socket: never the URL, which may hold a password. */
  readonly name: string;
  /** The name of further connections in `CLIENT LIST`. */
  readonly clientName: string;

  /**
   * @param clientName its name in `CLIENT LIST`, unless the user gave an owned client another name
   * @param commandTimeoutMs the time without a connection after which the server counts as down, in milliseconds
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

  /** Identifies the connection: it changes with each reconnection. */
  get generation(): unknown {
    return this.client.generation;
  }

  /**
   * Whether waiting is useless: an attempt to reconnect has failed or takes too long. Calls wait through a shorter break. A proxy that
   * accepts connections for a dead server delays this until `commandTimeoutMs`.
   */
  get isKnownDown(): boolean {
    if (this.isReady) return false;
    if (this.client.isEnded || this.#failures > 0) return true;
    return this.#downSince !== undefined && performance.now() - this.#downSince >= this.commandTimeoutMs;
  }

  /** The problem while it is not ready. The error object is reused until the problem changes, because every call reads it. */
  get problem(): NodeError {
    const { failure, status } = this.client;
    // The message of Redis for a missing login mentions HELLO, which users of this library never send.
    const cause = failure ? `: ${failure.refused === 'login' ? 'NOAUTH' : failure.problem}` : '';
    const problem = `${this.#refusal?.problem ?? `not connected (${status})`}${cause}`;
    if (this.#problem?.problem !== problem) this.#problem = nodeError(this.name, problem, this.#advice);
    return this.#problem;
  }

  get #advice(): string | undefined {
    if (this.#refusal || this.client.isOwned || !this.client.isEnded) return this.#refusal?.advice;
    return 'The client was closed (quit, disconnect, close or destroy) and does not reconnect: give a client that stays open.';
  }

  get #refusal(): { problem: string; advice: string } | undefined {
    const refused = this.client.failure?.refused;
    return refused && REFUSALS[refused];
  }

  /**
   * Waits until commands can be sent. Connects a lazy client.
   * @param when `start` while the application starts. Then it waits even for a server that is down, which may be starting, too, and a
   *   refusal ends the wait. Later a refusal does not end it, since the configuration may change
   * @returns undefined when it is ready; otherwise the problem, after `timeoutMs` or at once if waiting is useless
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
   * Reconnects if an overdue command remains unanswered. The `socketTimeout` of the client would set and clear a timer for each command.
   * Clients of the user are left alone.
   * @param isOpen whether the command is still unanswered
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
   * Reconnects because the server has become a replica. The address may lead to the primary by now, but the old connection would stay
   * with the replica. A replica in a Cluster redirects the client to its master, except on a connection in READONLY mode. A busy server
   * may have refused the READWRITE that ends this mode.
   * @returns advice for the user
   */
  leaveReplica(): string {
    const isDue = this.isReady && performance.now() - Math.max(this.#readyAt, this.#renewedAt) >= RENEW_EVERY_MS;
    if (this.client.topology.isCluster) {
      if (isDue) this.#renew();
      return 'A node that the client considers a master is a replica. The client refreshes its slot map.';
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
   * Reconnects if the server accepts a connection and then stays silent. It may be a proxy whose server is gone, or the network may have
   * failed. The client itself would wait as long as the connection stays open.
   */
  #expectAnswers(): void {
    const { generation, received } = this.client;
    if (generation === undefined) return; // a Cluster has no connection itself
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
