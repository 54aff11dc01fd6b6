import type { EventEmitter } from 'node:events';
import { installed } from '../../node/installed.js';
import { credentials, problemOf, type Credentials } from '../../node/problem-of.js';
import { CommandFault } from '../client/redis-client.js';

// The parts of node-redis 5 and 6 that this library uses. The types of neither version fit both.

/** A client for one server. */
export interface Client extends EventEmitter {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  readonly options?: ClientOptions;
  connect(): Promise<unknown>;
  destroy(): void;
  duplicate(options?: ClientOptions): Client;
  sendCommand(args: readonly string[], options?: object): Promise<unknown>;
  subscribe(channel: string, listener: (text: string) => void): Promise<void>;
  sSubscribe(channel: string, listener: (text: string, channel: string) => void): Promise<void>;
  sUnsubscribe(channel: string, listener: (text: string, channel: string) => void): Promise<void>;
}

/** Options of a client for one server, and of the clients that a Cluster or a Sentinel creates. */
export interface ClientOptions {
  url?: string;
  name?: string;
  username?: string;
  password?: string;
  credentialsProvider?: unknown;
  database?: number;
  keyPrefix?: string | Buffer;
  disableOfflineQueue?: boolean;
  maintNotifications?: 'disabled';
  RESP?: 2 | 3;
  pingInterval?: number;
  socket?: {
    host?: string;
    port?: number;
    path?: string;
    family?: number;
    tls?: boolean;
    connectTimeout?: number;
    socketTimeout?: number;
    reconnectStrategy?: false | ((retries: number) => number | false);
  };
}

export interface ClusterNode {
  readonly address: string;
  readonly client?: Client;
}

export interface ClusterClient extends EventEmitter {
  readonly isOpen: boolean;
  /** Undefined in node-redis 5. */
  readonly isReady?: boolean;
  readonly masters: readonly ClusterNode[];
  readonly slots: readonly ({ readonly master: ClusterNode } | undefined)[];
  readonly _options?: { defaults?: ClientOptions; keyPrefix?: string | Buffer; rootNodes?: readonly ClientOptions[] };
  /** Refreshes the slot map: asks a node with these options first, then others. */
  readonly _slots: { rediscover(startWith: { options: ClientOptions }): Promise<unknown> };
  connect(): Promise<unknown>;
  destroy(): unknown;
  nodeClient(node: ClusterNode): Promise<Client> | Client;
  sendCommand(key: string, isReadonly: boolean, args: readonly string[], options?: object): Promise<unknown>;
}

/** A client for a master that Sentinels name. */
export interface SentinelClient extends EventEmitter {
  readonly isOpen: boolean;
  readonly _keyPrefix?: string | Buffer;
  connect(): Promise<unknown>;
  destroy(): unknown;
  /** Runs a function with the client of the master. */
  _execute<T>(isReadonly: boolean, use: (master: Client) => Promise<T>): Promise<T>;
}

export type AnyClient = Client | ClusterClient | SentinelClient;

/** The exports of the package. */
interface NodeRedis {
  readonly createClient: (options: object) => Client;
  readonly createCluster: (options: object) => ClusterClient;
  readonly createSentinel: (options: object) => SentinelClient;
}

/** Loads node-redis when the first Redis is used. @throws LockOptionsError when it is not installed */
export async function loadNodeRedis(): Promise<NodeRedis> {
  const feature = 'Redis options of node-redis';
  const instead = ' With ioredis give { host, port }, or the URL by itself.';
  return (await installed('redis', import('redis'), feature, instead)) as unknown as NodeRedis;
}

/** Options of our clients: they do not queue commands while disconnected, since callers would no longer want the results. */
export const OWN_OPTIONS = {
  disableOfflineQueue: true,
  maintNotifications: 'disabled',
  RESP: 3, // HELLO sets the name without the right that CLIENT SETNAME needs; if that were refused, the connection would end
  socket: { connectTimeout: 2_000, reconnectStrategy: (retries: number) => Math.min((retries + 1) * 50, 1_000) },
} satisfies ClientOptions;

/** Options of a client that does not reconnect. */
export const CONNECT_ONCE = {
  ...OWN_OPTIONS,
  socket: { ...OWN_OPTIONS.socket, reconnectStrategy: false },
} satisfies ClientOptions;

/** Duplicates a client with some options replaced. */
export function duplicateClient(client: Client, { socket, ...options }: ClientOptions): Client {
  return client.duplicate({ ...options, socket: { ...client.options?.socket, ...socket } });
}

/** Options of a command. The time limit of the client would cost an AbortSignal per command, and only ends unwritten commands. */
export const COMMAND_OPTIONS = { timeout: undefined, typeMapping: undefined, abortSignal: undefined };

export function credentialsOf({ username, password }: ClientOptions = {}): Credentials {
  return credentials([password], [username]);
}

/** Whether Redis sent this error: only errors of Redis begin with a code in capitals. */
function isReplyError(error: unknown): boolean {
  return error instanceof Error && /^[A-Z][A-Z\d]+ /.test(error.message);
}

/** Converts the error of a command. @param of the credentials of the client */
export function faultOf(error: unknown, of: Credentials): CommandFault {
  if (isReplyError(error)) return new CommandFault(problemOf(error, of), 'refused');
  const wasSent = !/^The client is (closed|offline)$/.test(problemOf(error));
  return new CommandFault(wasSent ? 'the connection broke before the answer came' : 'not connected', 'disconnected');
}

/**
 * Ends a client and all its commands in flight. Only a Sentinel client ends asynchronously.
 * @param hasSocket whether it may have a socket: a client without one would continue to connect, and stay connected
 */
export function end(client: AnyClient, hasSocket = true): void {
  if (!hasSocket && client.isOpen) {
    for (const event of ['connect', 'ready', 'error']) client.once(event, () => end(client));
    return;
  }
  try {
    void Promise.resolve(client.destroy()).catch(() => {});
  } catch {
    // it is closed already
  }
}

/**
 * Keeps an error listener on a client, since errors without a listener are thrown. A client that once had no listener would not notify
 * later listeners either.
 */
export function ignoreErrors<C extends EventEmitter>(client: C): C {
  return client.listeners('error').includes(ignore) ? client : client.on('error', ignore);
}

function ignore(): void {}
