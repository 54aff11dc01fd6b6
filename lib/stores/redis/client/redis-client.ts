import type { EventEmitter } from 'node:events';
import type { RedisSource } from './source.js';

/**
 * A client of Redis: everything that this library knows of the package behind it, in three parts. Each package has an adapter, in a
 * folder of its own. Commands reject with a `CommandFault`.
 */
export interface RedisClient {
  /** `host:port`, or the path of a socket: never the URL, which may hold a password. */
  readonly name: string;
  readonly topology: RedisTopology;
  readonly messages: RedisMessages;
  /** Whether it was made here or by a function of the user. A client that the user passed is never closed or disconnected. */
  readonly isOwned: boolean;
  /** The name that the user gave its connections in `CLIENT LIST`. */
  readonly connectionName?: string;
  /** Whether it never settles commands that are open when its connection breaks. */
  readonly forgetsOpenCommands: boolean;
  /** Whether what it is asked is sent only when the present turn of the event loop is over. */
  readonly sendsLater: boolean;

  /** Whether commands can be sent now. */
  readonly isReady: boolean;
  /** Whether it was closed, or gave up, and does not connect again by itself. */
  readonly isEnded: boolean;
  /** The client's own word for its state: for messages only. */
  readonly status: string;
  /** The reason of the last failed attempt to connect since it was last ready, if it is known. */
  readonly failure?: ConnectionFailure;
  /** A value that stands for the connection that commands are sent on: another one after each break. A Cluster has none. */
  readonly generation: unknown;
  /** How many bytes have come on this connection. */
  readonly received: number;

  /** Reports changes of its connection from now on. Call it once at most. */
  listen(onChange: (change: ConnectionChange) => void): void;
  /** Connects for the first time, if it waits for the first command to do so. */
  connect(): void;
  /** Breaks its connection, so that it makes another one. A Cluster asks anew which master has which slot. */
  drop(reason: string): void;
  /** Stops reporting, and closes the client if it is owned. */
  close(): void;

  /**
   * Runs a script by its sha; if the server does not know it, by its text. Never throws, and answers after it has returned,
   * in the server's order. No promise: one for each command would cost more than everything else that is done for it.
   */
  run(call: ScriptCall): void;
  /** Sends one command, its keys as they are: without the key prefix. */
  call(command: string, ...args: (string | number)[]): Promise<unknown>;
}

/** Which servers there are, and which has a key. */
export interface RedisTopology {
  readonly isCluster: boolean;
  /** The prefix that the client puts before each key. */
  readonly keyPrefix: string;
  /** The number of the database that the client uses, as far as it knows. */
  readonly database: number;
  /** The server that has a key, as far as it is known: the same value for all keys, or its slot and the slot's master. */
  routeOf(key: string): Route;
  /**
   * The names of the servers that have the keys: in a Cluster the masters of its slots as it knows them, whether or not
   * `masters` has them. Undefined stands for the master of slots that have none.
   */
  readonly servers: ReadonlySet<string | undefined>;
  /** The client itself; for a Cluster, one for each master, which sends to it alone. */
  masters(): readonly RedisClient[];
  /**
   * Makes a client with a connection of its own, for commands that block it. It connects on `connect()`, sends nothing again
   * after a break, and sets no time limit. That of a Cluster's master knows the key prefix, and does not connect again.
   */
  duplicate(connectionName: string): RedisClient;
}

/** Messages of publish/subscribe. Nothing puts the key prefix before the name of a channel. */
export interface RedisMessages {
  /** Subscribes to a channel on a connection of its own, and again after each break of it. */
  subscribe(
    channel: string,
    connectionName: string,
    onMessage: (text: string) => void,
    onChange: (change: SubscriptionChange) => void,
  ): Subscription;
  /** Opens a connection of its own for sharded publish/subscribe: only for a master of a Cluster. It is not made again. */
  subscribeSharded(
    connectionName: string,
    onMessage: (text: string, channel: string) => void,
    onChange: (change: 'opened' | 'closed') => void,
  ): ShardedSubscription;
  /**
   * Publishes a message; a sharded one only to a master of a Cluster. Rejects with a `CommandFault`.
   * @returns how many listen to the channel, on that server
   */
  publish(channel: string, text: string, how?: 'sharded'): Promise<number>;
}

/** One package for Redis. */
export interface RedisDriver {
  /** Whether this is a client, or are options, of the package. A URL is nobody's. */
  owns(source: unknown): boolean;
  /** Loads the package when the first Redis is used. @throws LockOptionsError when it is not installed */
  load(): Promise<unknown>;
  /**
   * Opens a client; connects to nothing yet.
   * @param source a URL, or options or a client that it owns
   * @param clientName the name in `CLIENT LIST` of a client that is made here, unless its options have one
   * @param isOwned whether a client is closed with the locks, since a function of the user has made it for them
   * @throws LockOptionsError when the package is not installed
   */
  open(
    source: Exclude<RedisSource, (...args: never) => unknown>,
    clientName: string,
    isOwned?: boolean,
  ): Promise<RedisClient>;
}

/**
 * How long Redis may leave a SUBSCRIBE or SSUBSCRIBE unanswered, in milliseconds: a connection that is half open never answers
 * it, and a subscriber sends nothing else.
 */
export const SUBSCRIBE_LIMIT_MS = 5_000;

/**
 * A change of a client's connection:
 * - `accepted`: the server has accepted it, and has to answer before commands can be sent.
 * - `ready`: commands can be sent.
 * - `closed`: it broke, or could not be made.
 * - `ended`: it is not made again.
 * - `failed`: the client has reported an error, which is its `failure`.
 */
export type ConnectionChange = 'accepted' | 'ready' | 'closed' | 'ended' | 'failed';

/** The reason why a connection could not be made. */
export interface ConnectionFailure {
  /** In words that hold no password. */
  problem: string;
  /**
   * Set when the server refused one of these, and will do so until its setup is changed. A `login` is refused where the server
   * needs a password and the client has none.
   */
  refused?: 'credentials' | 'login' | 'database';
}

/** Whether this answer says that nobody has logged in. */
export function needsLogin(answer: string): boolean {
  return answer.startsWith('NOAUTH');
}

/** Whether this answer says that credentials are wrong or missing. */
export function refusesCredentials(answer: string): boolean {
  return needsLogin(answer) || answer.startsWith('WRONGPASS');
}

/** Whether this answer to `SELECT` is final, unlike that of a server that is busy and refuses everything for a while. */
export function refusesDatabase(answer: string): boolean {
  return /^(NOPERM|ERR (DB index|invalid DB|value is|SELECT is not|unknown command))/.test(answer);
}

/** Names the server of a key: the slot and its master's name in a Cluster, else a constant. */
export type Route = readonly (number | string)[];

/** A call of a script. Either `answered` or `failed` is called, once. */
export interface ScriptCall {
  readonly script: { readonly sha: string; readonly source: string };
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  /** Whether it may be sent a second time, where the server did not know the script. */
  readonly isWanted: boolean;
  /** Called before it is sent a second time: the server answered that it does not know the script. */
  sentAgain(): void;
  answered(reply: unknown): void;
  failed(fault: CommandFault): void;
}

/** The error of a command that got no answer, or a refusal. The message holds no password. */
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
  /** Stops reporting, and closes its connection. */
  close(): void;
}

/** Subscriptions to channels in the slots of one master of a Cluster, on one connection. */
export interface ShardedSubscription {
  /** Settles when messages arrive that are published on the channel from now on. Rejects with a `CommandFault`. */
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): void;
  /** Stops reporting, and closes the connection. */
  close(): void;
}

/**
 * A change of a connection that listens:
 * - `opened`: messages that are published from now on arrive; on a connection for sharded ones: channels can be subscribed to.
 * - `closed`: it broke, or could not be made, and all subscriptions are gone.
 * - a refusal: the server refused SUBSCRIBE, in these words, and is not asked again.
 */
export type SubscriptionChange = 'opened' | 'closed' | { readonly refusal: string };

/** Makes room for the listeners of one registration more, or less: Node.js takes more than ten for a leak. */
export function makeRoom(client: Pick<EventEmitter, 'getMaxListeners' | 'setMaxListeners'>, more: 1 | -1): void {
  const most = client.getMaxListeners();
  if (most > 0) client.setMaxListeners(most + more);
}
