import type { EventEmitter } from 'node:events';
import { installed } from '../../node/installed.js';
import { credentials, problemOf, type Credentials } from '../../node/problem-of.js';
import { CommandFault } from '../client/redis-client.js';

// As much of node-redis 5 and 6 as is used, which the types of neither say for both.

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

/** Options of a client for one server, and of each that a Cluster or a Sentinel makes. */
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

/** A master of a Cluster. */
export interface ClusterNode {
  readonly address: string;
  readonly client?: Client;
}

/** A client for a Cluster. */
export interface ClusterClient extends EventEmitter {
  readonly isOpen: boolean;
  /** node-redis 5 does not say. */
  readonly isReady?: boolean;
  readonly masters: readonly ClusterNode[];
  readonly slots: readonly ({ readonly master: ClusterNode } | undefined)[];
  readonly _options?: { defaults?: ClientOptions; keyPrefix?: string | Buffer; rootNodes?: readonly ClientOptions[] };
  /** Asks a node with these options, then others, which master has which slot. */
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

/** Any of them. */
export type AnyClient = Client | ClusterClient | SentinelClient;

/** The package. */
interface NodeRedis {
  readonly createClient: (options: object) => Client;
  readonly createCluster: (options: object) => ClusterClient;
  readonly createSentinel: (options: object) => SentinelClient;
}

/** Loads node-redis when the first Redis is used. @throws LockOptionsError when it is not installed */
export async function loadNodeRedis(): Promise<NodeRedis> {
  const who = 'Locks on Redis by options of node-redis';
  const instead = ' With ioredis give { host, port }, or the URL by itself.';
  return (await installed('redis', import('redis'), who, instead)) as unknown as NodeRedis;
}

/** Options of the clients that are made here: what is not sent when a connection breaks is not sent later, by which it is no longer wanted. */
export const OWN_OPTIONS = {
  disableOfflineQueue: true,
  maintNotifications: 'disabled',
  RESP: 3, // it says its name in HELLO, which needs no right as CLIENT SETNAME does, and whose refusal would end the connection
  socket: { connectTimeout: 2_000, reconnectStrategy: (retries: number) => Math.min((retries + 1) * 50, 1_000) },
} satisfies ClientOptions;

/** Options of a client that connects once. */
export const CONNECT_ONCE = {
  ...OWN_OPTIONS,
  socket: { ...OWN_OPTIONS.socket, reconnectStrategy: false },
} satisfies ClientOptions;

/** A client with the settings of another one, except for these. */
export function duplicateClient(client: Client, { socket, ...options }: ClientOptions): Client {
  return client.duplicate({ ...options, socket: { ...client.options?.socket, ...socket } });
}

/** Settings of a command. The client's own limit would cost a signal for each, and ends only those that are not written yet. */
export const COMMAND_OPTIONS = { timeout: undefined, typeMapping: undefined, abortSignal: undefined };

/** What a client logs in with. */
export function credentialsOf({ username, password }: ClientOptions = {}): Credentials {
  return credentials([password], [username]);
}

/** Whether Redis answered with this error, which begins with a code in capitals. No error of the client or the system does. */
function isReplyError(error: unknown): boolean {
  return error instanceof Error && /^[A-Z][A-Z\d]+ /.test(error.message);
}

/** The fault of a command that a client with these credentials has rejected with this error. */
export function faultOf(error: unknown, of: Credentials): CommandFault {
  if (isReplyError(error)) return new CommandFault(problemOf(error, of), 'refused');
  const wasSent = !/^The client is (closed|offline)$/.test(problemOf(error));
  return new CommandFault(wasSent ? 'the connection broke before the answer came' : 'not connected', 'disconnected');
}

/**
 * Ends a client, and with it all that is in flight. Only a Sentinel's answers later.
 * @param hasSocket whether it may have one: destroyed before, it would go on to connect, and stay so
 */
export function end(client: AnyClient, hasSocket = true): void {
  if (!hasSocket && client.isOpen) {
    for (const event of ['connect', 'ready', 'error']) client.once(event, () => end(client));
    return;
  }
  try {
    void Promise.resolve(client.destroy()).catch(() => {});
  } catch {
    // it was closed already
  }
}

/**
 * Leaves a client a listener for errors, which would be thrown without one. A client that has lost its last listener hears of later ones
 * no more, either: it emits where they are not.
 */
export function ignoreErrors<C extends EventEmitter>(client: C): C {
  return client.listeners('error').includes(ignore) ? client : client.on('error', ignore);
}

function ignore(): void {}
