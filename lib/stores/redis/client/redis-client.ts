/**
 * A client of Redis, as far as this library uses one: all that it knows of the package behind it. There is one adapter,
 * `ioredis-adapter.ts`. What a command rejects with is a `CommandFault`.
 */
export interface RedisClient {
  /** `host:port`, or the path of a socket: never the URL, which may hold a password. */
  readonly name: string;
  readonly isCluster: boolean;
  /** Whether it was made here or by a function of the user. A client that was handed in is never closed or broken off. */
  readonly isOwned: boolean;
  /** What the user has its connections called in `CLIENT LIST`. */
  readonly connectionName?: string;
  /** What it puts before each key. */
  readonly keyPrefix: string;
  /** The database that it is in, as far as it knows. */
  readonly database: number;
  /** A command that is open when its connection breaks is never settled. */
  readonly forgetsOpenCommands: boolean;

  /** Whether commands can be sent now. */
  readonly isReady: boolean;
  /** It was closed, or gave up, and does not connect again by itself. */
  readonly isEnded: boolean;
  /** The client's own word for its state: for messages only. */
  readonly status: string;
  /** Why it could not connect, as far as that is known: since it was last ready. */
  readonly failure?: ConnectionFailure;
  /** What stands for the connection that commands are sent on: another value after each break. A Cluster has none. */
  readonly generation: unknown;

  /** Tells of its connection from now on. Call it once at most. */
  listen(listener: RedisClientListener): void;
  /** Connects for the first time, if it waits for the first command to do so. */
  connect(): void;
  /** Breaks its connection off, so that it makes another one. */
  drop(reason: string): void;
  /** Tells nothing any more, and closes the client if it is owned. */
  close(): void;

  /** Which server has a key, as far as that is known: the same value for all keys, or its slot and the slot's master. */
  routeOf(key: string): Route;
  /**
   * Runs a script by its sha; if the server does not know it, by its text. Never throws, and answers after it has returned,
   * in the order of the server: a promise for each command would cost more than all else that is done for it.
   */
  run(call: ScriptCall): void;
  /** Sends one command. */
  call(command: string, ...args: (string | number)[]): Promise<unknown>;
  /** Sends several commands at once. Rejects when the connection fails. */
  ask(commands: readonly (readonly [command: string, ...args: string[]])[]): Promise<Answer[]>;

  /** Itself; for each master of a Cluster one that sends to it alone, and does not know the Cluster's key prefix. */
  masters(): readonly RedisClient[];
  /**
   * Another one on a connection of its own, for commands that block it. It connects when it is told to, sends nothing again
   * after a break, and sets no time limit. That of a Cluster's master knows the key prefix, and does not connect again.
   */
  duplicate(connectionName: string): RedisClient;
  /** Subscribes to a channel on a connection of its own, and again after each break of it. */
  subscribe(channel: string, connectionName: string, listener: SubscriptionListener): Subscription;
  /** Tries whether a channel may be subscribed to, on a connection of its own. Never rejects. */
  trySubscribing(channel: string, connectionName: string, timeoutMs: number): Promise<Answer>;
}

/** Is told of a client's connection. */
export interface RedisClientListener {
  /** Commands can be sent. */
  ready(): void;
  /** It broke, or could not be made. */
  closed(): void;
  /** It is not made again. */
  ended(): void;
  /** The client has reported an error: `failure` says which. */
  failed(): void;
}

/** Why a connection could not be made. */
export interface ConnectionFailure {
  /** In words that hold no password. */
  problem: string;
  /** What the server refused, and will refuse until something is changed. */
  refused?: 'credentials' | 'database';
}

/** Which server is asked: the slot and its master's name in a Cluster, else a constant. */
export type Route = readonly (number | string)[];

/** A script that is to be run, and who is told what came of it: `answered` or `failed`, once. */
export interface ScriptCall {
  readonly script: { readonly sha: string; readonly source: string };
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  /** Otherwise it is not sent a second time. */
  readonly isWanted: boolean;
  answered(reply: unknown): void;
  failed(fault: CommandFault): void;
}

/** The answer to one command. */
export type Answer = { value: unknown } | { refusal: string };

/** What a command has instead of an answer. The message holds no password. */
export class CommandFault extends Error {
  constructor(
    message: string,
    /**
     * `refused`: Redis answered with an error. `overdue`: the client has a time limit of its own, and does not tell when the
     * server answers after all. `disconnected`: anything else.
     */
    readonly kind: 'refused' | 'overdue' | 'disconnected',
  ) {
    super(message);
  }
}

/** A subscription to one channel. */
export interface Subscription {
  /** Tells nothing any more, and closes its connection. */
  close(): void;
}

/** Is told of a subscription. */
export interface SubscriptionListener {
  message(text: string): void;
  /** What is published from now on arrives. */
  opened(): void;
  /** Its connection broke, or could not be made. */
  closed(): void;
  /** It is not made again. */
  ended(): void;
}
