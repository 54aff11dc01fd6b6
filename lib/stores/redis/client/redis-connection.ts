import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import { Redis, type Cluster, type RedisOptions } from 'ioredis';
import { checkMade, isClient } from './check-source.js';
import { NodeError } from '../../../api/errors.js';
import type { RedisClient, RedisSource } from '../../../api/options.js';
import { problemOf } from './problem-of.js';
import { isReplyError } from './reply-error.js';

/**
 * Limits for the clients this library makes. A command of a broken connection fails at once and is not sent again by
 * the client, because a late acquire would leave an orphan; the backend decides what is tried again.
 */
const OWN_CLIENT = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: true, // with 0 retries all fail at the first close; `false` would never settle them
  maxRetriesPerRequest: 0,
  connectTimeout: 2_000,
  disconnectTimeout: 100, // or the process would live for 2 s after a close while Redis is down
  retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
} satisfies RedisOptions;

/** So long after a command was due its connection counts as half-open. */
const HALF_OPEN_AFTER_MS = 4_000;

/** A server that has become a replica is left for the one that its address may lead to now at most so often. */
const RENEW_EVERY_MS = 1_000;

/** What a server refuses until somebody changes something. */
interface Refusal {
  what: string;
  advice: string;
}

const CREDENTIALS: Refusal = { what: 'the credentials', advice: 'Correct username and password.' };
const DATABASE: Refusal = {
  what: 'the database',
  advice: 'Give its user the right +select, or name a database that it has.',
};

/** One client, made here or handed in, and whether it can be used now. */
export class RedisConnection {
  readonly #waiting = new Set<() => void>();
  /** Those of them to whom a refusal is an answer. */
  readonly #starting = new Set<() => void>();
  readonly #wake = () => {
    for (const waiter of this.#waiting) waiter();
  };
  readonly #remember = (error: Error) => {
    if (this.#isGivenUp) return; // what follows from that
    if (this.client.isCluster) this.#lastError ??= problemOf(error);
    else this.#lastError = problemOf(error);
    this.#refusal = refusalOf(error);
    // Whatever the reason, the client would go on in database 0, where others do not look for the lock.
    if (isOfSelect(error)) {
      this.#givenUp = this.stream;
      this.stream?.destroy();
    }
    if (this.#refusal) for (const waiter of this.#starting) waiter();
  };
  /** An error of the Cluster itself only says that all its nodes failed. */
  readonly #rememberNode = (error: Error, node: string) => {
    if (!this.isReady) this.#lastError = `${node}: ${problemOf(error)}`;
  };
  readonly #whenReady = new Set<() => void>();
  /** One listener for all: of more than ten, on a client that several registrations share, Node warns. */
  readonly #becomeReady = () => {
    this.#noteReady();
    for (const each of this.#whenReady) each(); // before those that wait send anything
    this.#wake();
  };
  readonly #noteReady = () => {
    if (this.#isGivenUp) return;
    this.#wasReady = true;
    this.#readyAt = performance.now();
    this.#failures = 0;
    this.#lastError = this.#refusal = this.#downSince = undefined;
  };
  readonly #noteClose = () => {
    this.#downSince ??= performance.now();
    if (this.#wasReady) this.#wasReady = false;
    else this.#failures++;
    // To listen to the errors of a handed client would keep it from reporting those that nobody else listens to.
    const error = this.owned ? undefined : this.stream?.errored;
    if (error) this.#lastError = problemOf(error);
  };
  /** Since it was last ready. */
  #lastError?: string;
  #refusal?: Refusal;
  #wasReady: boolean;
  /** How many attempts to connect have failed since it was last ready. */
  #failures = 0;
  /** Since when it is not ready, although it should be. */
  #downSince?: number;
  #readyAt = performance.now();
  /** The last connection that was not in the database that it was to use. */
  #givenUp?: Duplex;
  #problem?: NodeError;

  /** What the further connections that are made after its example are called in `CLIENT LIST`. */
  readonly clientName: string;

  private constructor(
    readonly client: RedisClient,
    /** `host:port`, or the path of a socket: never the URL, which may hold a password. */
    readonly name: string,
    private readonly owned: boolean,
    clientName: string,
    private readonly commandTimeoutMs: number,
  ) {
    this.clientName = (owned && ownNameOf(client)) || clientName;
    this.#wasReady = this.isReady;
    client.on('ready', this.#becomeReady).on('close', this.#noteClose).on('end', this.#wake);
    if (client.isCluster) client.on('node error', this.#rememberNode);
    // A handed client keeps its own way of reporting errors.
    if (this.owned) client.on('error', this.#remember);
  }

  /**
   * @param clientName for what is made here, unless the user gave it one
   * @param commandTimeoutMs after so long without a connection the server counts as down
   * @throws what the user's function throws
   */
  static async open(
    source: RedisSource,
    clientName = 'nest-redis-lock',
    commandTimeoutMs = 1_000,
  ): Promise<RedisConnection> {
    const open = (client: RedisClient, owned: boolean) =>
      new RedisConnection(client, nameOf(client), owned, clientName, commandTimeoutMs);
    if (typeof source === 'function') {
      const made: unknown = await source();
      checkMade(made);
      return open(made, true);
    }
    const own = { ...OWN_CLIENT, connectionName: clientName };
    if (typeof source === 'string') return open(new Redis(source, own), true);
    if (isClient(source)) return open(source, false);
    return open(new Redis({ ...own, ...source }), true);
  }

  get isReady(): boolean {
    return this.client.status === 'ready';
  }

  /**
   * Whether it is of no use to wait for it: an attempt to connect again has failed, or took too long. A break that is
   * shorter is ridden out. What a proxy that takes connections hides is known after `commandTimeoutMs`.
   */
  get isKnownDown(): boolean {
    if (this.isReady) return false;
    if (this.client.status === 'end' || this.#failures > 0) return true;
    return this.#downSince !== undefined && performance.now() - this.#downSince >= this.commandTimeoutMs;
  }

  /** What is wrong while it is not ready. The same one until that changes: it is asked for by every call meanwhile. */
  get problem(): NodeError {
    const cause = this.#lastError ? `: ${this.#lastError}` : '';
    const problem = this.#refusal
      ? `it refused ${this.#refusal.what}${cause}`
      : `not connected (${this.client.status})${cause}`;
    if (this.#problem?.problem !== problem) this.#problem = new NodeError(this.name, problem, this.#advice);
    return this.#problem;
  }

  get #advice(): string | undefined {
    if (this.#refusal || this.owned || this.client.status !== 'end') return this.#refusal?.advice;
    return 'The client was closed, by quit or disconnect, and does not connect again: hand in one that stays open.';
  }

  /**
   * Waits until commands can be sent. Starts the connection of a lazy client, as a command would.
   * @param when at the `start` of the application a server may be about to start, too: it is waited for also when it is
   *   known to be down, but what it refuses will stay so; later that may be changing
   * @returns undefined when it is ready; what is wrong after `timeoutMs`, or at once when it is of no use to wait
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    if (this.isReady) return undefined;
    if (this.client.status === 'wait') this.client.connect().catch(() => {}); // reported by the status
    this.#downSince ??= performance.now();
    const isHopeless =
      when === 'start' ? this.client.status === 'end' || this.#refusal !== undefined : this.isKnownDown;
    if (!isHopeless && timeoutMs > 0) await this.#change(timeoutMs, when);
    return this.isReady ? undefined : this.problem;
  }

  /**
   * Calls back each time that commands can be sent again, until it is closed.
   * @returns ends that
   */
  onReady(call: () => void): () => void {
    this.#whenReady.add(call);
    return () => this.#whenReady.delete(call);
  }

  /**
   * Gives the connection up, and has it made anew, if a command that is overdue stays so: the client's own `socketTimeout`
   * would set and clear a timer for each command. Clients that were handed in are left alone.
   */
  suspect(isOpen: () => boolean): void {
    const { stream } = this;
    if (!this.owned || !stream) return;
    const giveUp = () => {
      if (stream === this.stream && isOpen()) stream.destroy(new Error('it does not answer'));
    };
    setTimeout(giveUp, HALF_OPEN_AFTER_MS).unref();
  }

  /**
   * Has the connection made anew, because its server has become a replica: the address may lead to the primary by now,
   * while the old connection would stay with the replica for ever. In a Cluster the server itself sends the client on.
   * @returns what to do about it
   */
  leaveReplica(): string {
    if (!this.owned) {
      return 'Its server is a replica, which the client stays connected to: call client.disconnect(true), which connects it anew, or give the module a URL or options.';
    }
    if (this.isReady && performance.now() - this.#readyAt >= RENEW_EVERY_MS) {
      this.stream?.destroy(new Error('its server is a replica'));
    }
    return 'Its server is a replica: check that the address leads to the primary. The connection is made anew every second until it does.';
  }

  /** What commands are sent on now: another one after each break. A Cluster has none of its own. */
  get stream(): Duplex | undefined {
    return (this.client as Redis).stream;
  }

  /** Closes the client if it was made here. Nothing may be under way any more. */
  close(): void {
    this.client.off('ready', this.#becomeReady).off('close', this.#noteClose).off('end', this.#wake);
    this.#whenReady.clear();
    this.client.off('node error', this.#rememberNode);
    if (this.owned) this.client.disconnect();
    this.#wake();
  }

  /** Without the client's check it becomes ready all the same, for a moment. */
  get #isGivenUp(): boolean {
    return this.#givenUp !== undefined && this.#givenUp === this.stream;
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

function refusalOf(error: Error): Refusal | undefined {
  if (/^(NOAUTH|WRONGPASS)/.test(error.message)) return CREDENTIALS;
  return isOfSelect(error) && refusesDatabase(error.message) ? DATABASE : undefined;
}

function isOfSelect(error: Error & { command?: { name: string } }): boolean {
  return isReplyError(error) && error.command?.name === 'select';
}

/** Whether this answer to `SELECT` is for good; a server that is busy, say, refuses anything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}

function nameOf(client: RedisClient): string {
  if (client.isCluster) return 'cluster';
  const { host, port, path, sentinels, name } = (client as Redis).options;
  return sentinels?.length ? `sentinel master ${name}` : (path ?? `${host}:${port}`);
}

function ownNameOf(client: RedisClient): string | null | undefined {
  return client.isCluster
    ? (client as Cluster).options.redisOptions?.connectionName
    : (client as Redis).options.connectionName;
}
