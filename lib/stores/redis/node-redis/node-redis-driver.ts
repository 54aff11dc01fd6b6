import { LockOptionsError } from '../../../api/errors.js';
import { inTime } from '../../../core/time/time-limit.js';
import { VARIABLE_HINT } from '../../node/address.js';
import { isNodeRedisClient, isNodeRedisOptions } from '../client/check-source.js';
import { makeRoom, type RedisClient, type RedisDriver } from '../client/redis-client.js';
import {
  credentialsOf,
  end,
  ignoreErrors,
  duplicateClient,
  loadNodeRedis,
  CONNECT_ONCE,
  OWN_OPTIONS,
  type AnyClient,
  type Client,
  type ClientOptions,
  type SentinelClient,
} from './node-redis.js';
import { NodeRedisAdapter } from './node-redis-adapter.js';
import { NodeRedisCluster, SLOTS_LIMIT_MS } from './node-redis-cluster.js';

/** node-redis 5.10 or later: a client for one server, for a master that Sentinel names, or for a Cluster. */
export const nodeRedis: RedisDriver = {
  owns: (source) => isNodeRedisClient(source) || isNodeRedisOptions(source),
  load: loadNodeRedis,
  open: async (source, clientName, isOwned = false) => {
    if (isNodeRedisClient(source)) return adapterOf(source as unknown as AnyClient, isOwned);
    const { createClient, createCluster, createSentinel } = await loadNodeRedis();
    const own = { ...OWN_OPTIONS, name: clientName };
    const given = (typeof source === 'string' ? optionsOf(source) : source) as GivenOptions;
    if (given.rootNodes) {
      const rootNodes = given.rootNodes.map((root) => ({
        ...root,
        socket: { socketTimeout: SLOTS_LIMIT_MS, ...root.socket },
      }));
      const all = {
        RESP: OWN_OPTIONS.RESP, // nodes use the setting of the Cluster and ignore their own
        minimizeConnections: true, // otherwise it waits for connections to all listed masters, even to one that is down
        ...given,
        rootNodes,
        defaults: merged(own, given.defaults),
      };
      return adapterOf(createCluster(all), true);
    }
    if (given.sentinelRootNodes) {
      const options = {
        ...given,
        nodeClientOptions: merged({ ...own, ...SENTINEL_OPTIONS }, given.nodeClientOptions),
        sentinelClientOptions: merged(SENTINEL_OPTIONS, given.sentinelClientOptions),
      };
      return adapterOf(createSentinel(options), true, given);
    }
    return adapterOf(createClient(merged(own, given)), true);
  },
};

/** The options that distinguish the kinds of clients, and the options for each node. */
interface GivenOptions extends ClientOptions {
  rootNodes?: readonly ClientOptions[];
  sentinelRootNodes?: unknown;
  defaults?: ClientOptions;
  nodeClientOptions?: ClientOptions;
  sentinelClientOptions?: ClientOptions;
}

/**
 * Options for the connections of a Sentinel client. They skip a server that hangs, for which node-redis would wait forever. They give up
 * a failed server after a few attempts, because node-redis 5 would keep connecting to the first master.
 */
const SENTINEL_OPTIONS = {
  pingInterval: 1_000,
  socket: {
    connectTimeout: 2_000,
    socketTimeout: 3_000,
    reconnectStrategy: (retries: number) => retries < 2 && 100,
  },
} satisfies ClientOptions;

/** The time limit for Sentinels to name the master, in milliseconds. A client that the user passed may have none. */
const SENTINELS_LIMIT_MS = 5_000;

/** Merges the options of the user into ours. A URL becomes options, because node-redis ignores the query of a URL. */
function merged(own: ClientOptions, { url, ...given }: ClientOptions = {}): ClientOptions {
  const options = { ...own, ...given, socket: { ...own.socket, ...given.socket } };
  if (url !== undefined) return merged(options, optionsOf(url));
  const { password, credentialsProvider } = options;
  if (credentialsOf(options).usernames.length > 0 && !password && !credentialsProvider) {
    throw new LockOptionsError(
      'A URL or options for node-redis have a user name without a password: the client would not log in, and would take locks ' +
        `as the user "default". Give a password as well; a user that needs none accepts any. ${VARIABLE_HINT}`,
    );
  }
  return options;
}

function adapterOf(client: AnyClient, isOwned: boolean, given?: ClientOptions): RedisClient {
  if ('masters' in client) return new NodeRedisCluster(client, isOwned);
  if ('getMasterNode' in client) return sentinelAdapter(client as SentinelClient, isOwned, given);
  const single = client as Client;
  const another = (options: ClientOptions) => Promise.resolve(duplicateClient(single, options));
  return new NodeRedisAdapter({ name: nameOf(single), isOwned, client: single, another });
}

/**
 * Creates an adapter with its own connection to the master, which is closed with the locks. The Sentinel client itself would resend
 * commands after a break, and acquire locks for calls that have given up.
 */
function sentinelAdapter(sentinel: SentinelClient, isOwned: boolean, given: ClientOptions = {}): RedisClient {
  // The message about a failover may be lost. READONLY makes node-redis ask the Sentinels again.
  let wasOpen = sentinel.isOpen;
  const ask = async (): Promise<Client> => {
    let isKnown = !sentinel.isOpen;
    if (isKnown && wasOpen && !isOwned) throw new Error('the application has closed its client');
    if (isKnown) await sentinel.connect().catch(closeAgain);
    wasOpen = true;
    return sentinel._execute(false, (client) => {
      if (isKnown) return Promise.resolve(client);
      isKnown = true;
      return Promise.reject(new Error('READONLY It may no longer be the master.'));
    });
  };
  // Otherwise node-redis 5 stays open and never asks a Sentinel again.
  const closeAgain = async (error: unknown) => {
    await sentinel.destroy();
    throw error;
  };
  let asking: Promise<Client> | undefined;
  const another = async (options: ClientOptions): Promise<Client> => {
    asking ??= ask().finally(() => (asking = undefined)); // only one at a time, since it may hang
    const client = await inTime(asking, SENTINELS_LIMIT_MS, () => {
      throw new Error(`no Sentinel has named the master within ${SENTINELS_LIMIT_MS} ms`);
    });
    return duplicateClient(client, {
      ...options,
      pingInterval: 0,
      socket: { ...options.socket, ...CONNECT_ONCE.socket, socketTimeout: 0 },
    });
  };
  const onFailover = ({ type }: { type: string }) => {
    if (type === 'MASTER_CHANGE') adapter.drop('it is no longer the master');
  };
  const onClose = () => {
    makeRoom(sentinel, -1);
    sentinel.off('topology-change', onFailover);
    if (isOwned) end(sentinel);
  };
  const name = given.name === undefined ? 'sentinel master' : `sentinel master ${given.name}`;
  const keyPrefix = given.keyPrefix ?? sentinel._keyPrefix ?? ''; // node-redis 5 does not store it
  const adapter = new NodeRedisAdapter({ name, isOwned: true, asksAgain: true, keyPrefix, another, onClose });
  // The connection to the master has the same errors and reports them.
  makeRoom(sentinel, 1);
  ignoreErrors(sentinel).on('topology-change', onFailover);
  return adapter;
}

function nameOf({ options }: Client): string {
  const { host = 'localhost', port = 6379, path } = options?.socket ?? {};
  return path ?? `${host}:${port}`;
}

/** Returns the options of a URL, with the same meaning as for ioredis. */
function optionsOf(source: string): ClientOptions {
  if (source.startsWith('/')) return { socket: { path: source } };
  const { protocol, hostname, port, username, password, pathname, searchParams } = new URL(source);
  const [family, name] = [searchParams.get('family'), searchParams.get('connectionName')];
  const database = pathname.slice(1) || searchParams.get('db');
  return {
    ...(name !== null && { name }),
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(database !== null && { database: Number(database) }),
    socket: {
      host: hostname.replace(/^\[(.*)\]$/, '$1'),
      port: Number(port || 6379),
      ...(protocol === 'rediss:' && { tls: true }),
      ...(family !== null && { family: Number(family) }),
    },
  };
}
