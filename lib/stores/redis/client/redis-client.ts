import type { EventEmitter } from 'node:events';
import type { RedisSource } from './source.js';

/**
 * A client of Redis: everything that this library uses of a client package, in three parts. Each package has an adapter in its own
 * folder. Commands reject with a `CommandFault`.
 */
export interface RedisClient {
  /** `host:port`, or the path of a socket: never the URL, which may contain a password. */
  readonly name: string;
  readonly topology: RedisTopology;
  readonly messages: RedisMessages;
  /** Whether this library or a function of the user created it. A client that the user passed is never closed or disconnected. */
  readonly isOwned: boolean;
  /** The name that the user gave its connections in `CLIENT LIST`. */
  readonly connectionName?: string;
  /** Whether commands that are open when the connection breaks never settle. */
  readonly forgetsOpenCommands: boolean;
  /** Whether it sends commands only at the end of the current event-loop turn. */
  readonly sendsLater: boolean;

  /** Whether commands can be sent now. */
  readonly isReady: boolean;
  /** Whether it was closed, or gave up, and does not connect again by itself. */
  readonly isEnded: boolean;
  /** The client's word for its state, only for messages. */
  readonly status: string;
  /** The reason of the last failed attempt to connect since it was last ready, if known. */
  readonly failure?: ConnectionFailure;
  /** Identifies the current connection: it changes after each break. Undefined for a Cluster. */
  readonly generation: unknown;
  /** The number of bytes received on this connection. */
  readonly received: number;

  /** Reports changes of the connection from now on. Call it at most once. */
  listen(onChange: (change: ConnectionChange) => void): void;
  /** Connects a client that would otherwise connect with its first command. */
  connect(): void;
  /** Breaks its connection, so that it reconnects. A Cluster refreshes its slot map. */
  drop(reason: string): void;
  /** Stops reporting, and closes an owned client. */
  close(): void;

  /**
   * Runs a script by its sha, or by its text if the server does not know it. Never throws, and answers after it has returned, in the
   * order of the server. It returns no promise, because a promise would cost more than all other work for a command.
   */
  run(call: ScriptCall): void;
  /** Sends one command without adding the key prefix. */
  call(command: string, ...args: (string | number)[]): Promise<unknown>;
}

/** The servers, and which of them has which key. */
export interface RedisTopology {
  readonly isCluster: boolean;
  /** The prefix that the client puts before each key. */
  readonly keyPrefix: string;
  /** The number of the database that the client uses, as far as it knows. */
  readonly database: number;
  /** The route to a key: a constant for one server; in a Cluster the slot and, if known, its master. */
  routeOf(key: string): Route;
  /**
   * The names of the servers that have the keys. In a Cluster these are the known masters of the slots, even if `masters` lacks them.
   * Undefined means slots without a known master.
   */
  readonly servers: ReadonlySet<string | undefined>;
  /** The client itself, or for a Cluster one client for each master. */
  masters(): readonly RedisClient[];
  /**
   * Creates a client with a separate connection for blocking commands. It connects on `connect()`, does not resend commands after a
   * break, and sets no time limit. For a master of a Cluster it has the key prefix and does not reconnect.
   */
  duplicate(connectionName: string): RedisClient;
}

/** Publish/subscribe messages. Names of channels do not get the key prefix. */
export interface RedisMessages {
  /** Subscribes to a channel on a separate connection, and again after each break. */
  subscribe(
    channel: string,
    connectionName: string,
    onMessage: (text: string) => void,
    onChange: (change: SubscriptionChange) => void,
  ): Subscription;
  /** Opens a separate connection for sharded publish/subscribe to a master of a Cluster. It does not reconnect. */
  subscribeSharded(
    connectionName: string,
    onMessage: (text: string, channel: string) => void,
    onChange: (change: 'opened' | 'closed') => void,
  ): ShardedSubscription;
  /**
   * Publishes a message. Sharded messages need a master of a Cluster. Rejects with a `CommandFault`.
   * @returns the number of listeners of the channel on that server
   */
  publish(channel: string, text: string, how?: 'sharded'): Promise<number>;
}

/** A client package for Redis. */
export interface RedisDriver {
  /** Whether the source is a client or options of this package. A URL belongs to no package. */
  owns(source: unknown): boolean;
  /** Loads the package when the first Redis is used. @throws LockOptionsError when it is not installed */
  load(): Promise<unknown>;
  /**
   * Opens a client without connecting it.
   * @param source a URL, or options or a client of this package
   * @param clientName the name of a new client in `CLIENT LIST`, unless its options have a name
   * @param isOwned whether to close the client with the locks, because a function of the user created it for them
   * @throws LockOptionsError when the package is not installed
   */
  open(
    source: Exclude<RedisSource, (...args: never) => unknown>,
    clientName: string,
    isOwned?: boolean,
  ): Promise<RedisClient>;
}

/**
 * The time limit for the answer to SUBSCRIBE or SSUBSCRIBE, in milliseconds. On a half-open connection it never comes, and a subscriber
 * sends nothing else that would reveal this.
 */
export const SUBSCRIBE_LIMIT_MS = 5_000;

/**
 * A change of a client's connection:
 * - `accepted`: the server has accepted the connection, but must answer before commands can be sent.
 * - `ready`: commands can be sent.
 * - `closed`: the connection broke or failed to open.
 * - `ended`: the client will not reconnect.
 * - `failed`: the client has reported an error: see `failure`.
 */
export type ConnectionChange = 'accepted' | 'ready' | 'closed' | 'ended' | 'failed';

/** The reason why a connection failed. */
export interface ConnectionFailure {
  /** Without passwords. */
  problem: string;
  /**
   * Set if the server refuses one of these until its configuration changes. `login`: the server needs a password, and the client has
   * none.
   */
  refused?: 'credentials' | 'login' | 'database';
}

/** Whether this answer means that the client has not logged in. */
export function needsLogin(answer: string): boolean {
  return answer.startsWith('NOAUTH');
}

/** Whether this answer means that credentials are wrong or missing. */
export function refusesCredentials(answer: string): boolean {
  return needsLogin(answer) || answer.startsWith('WRONGPASS');
}

/** Whether this answer to `SELECT` is final, and not the temporary refusal of a busy server. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}

/** Identifies the server of a key: the slot and the name of its master in a Cluster, otherwise a constant. */
export type Route = readonly (number | string)[];

/** A call of a script. The client calls either `answered` or `failed`, once. */
export interface ScriptCall {
  readonly script: { readonly sha: string; readonly source: string };
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  /** Whether to send it again if the server does not know the script. */
  readonly isWanted: boolean;
  /** Called before it is sent again because the server does not know the script. */
  sentAgain(): void;
  answered(reply: unknown): void;
  failed(fault: CommandFault): void;
}

/** The error of a command that was refused or got no answer. The message contains no password. */
export class CommandFault extends Error {
  constructor(
    message: string,
    /**
     * `refused`: Redis answered with an error. `overdue`: the client's own time limit has passed, and it will not report a
     * later answer. `disconnected`: anything else.
     */
    readonly kind: 'refused' | 'overdue' | 'disconnected',
  ) {
    super(message);
  }
}

/** A subscription to one channel. */
export interface Subscription {
  /** Stops reporting, and closes the connection. */
  close(): void;
}

/** Subscriptions to channels in the slots of one master of a Cluster, on one connection. */
export interface ShardedSubscription {
  /** Resolves when messages of the channel will arrive from now on. Rejects with a `CommandFault`. */
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): void;
  /** Stops reporting, and closes the connection. */
  close(): void;
}

/**
 * A change of a connection that listens:
 * - `opened`: messages arrive from now on; on a sharded connection, channels can be subscribed to.
 * - `closed`: the connection broke or failed to open, and all subscriptions are gone.
 * - a refusal: the server refused SUBSCRIBE with this message. The client does not try again.
 */
export type SubscriptionChange = 'opened' | 'closed' | { readonly refusal: string };

/** Raises or lowers the listener limit for one registration: Node.js reports more than ten listeners as a leak. */
export function makeRoom(client: Pick<EventEmitter, 'getMaxListeners' | 'setMaxListeners'>, change: 1 | -1): void {
  const limit = client.getMaxListeners();
  if (limit > 0) client.setMaxListeners(limit + change);
}
