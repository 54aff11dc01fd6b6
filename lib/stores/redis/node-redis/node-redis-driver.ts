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
        RESP: OWN_OPTIONS.RESP, // nodes have the Cluster's own, whatever their defaults say
        minimizeConnections: true, // or it waits until it is connected to each master that is listed, also to one that is down
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

/** What tells the kinds of options apart, and where those of each node are. */
interface GivenOptions extends ClientOptions {
  rootNodes?: readonly ClientOptions[];
  sentinelRootNodes?: unknown;
  defaults?: ClientOptions;
  nodeClientOptions?: ClientOptions;
  sentinelClientOptions?: ClientOptions;
}

/**
 * Options of the connections of a Sentinel client: a server that hangs is passed over, where node-redis would wait for it without end,
 * and one that is down left after a few attempts: node-redis 5 connects to the master that was named first, whatever Sentinels say.
 */
const SENTINEL_OPTIONS = {
  pingInterval: 1_000,
  socket: {
    connectTimeout: 2_000,
    socketTimeout: 3_000,
    reconnectStrategy: (retries: number) => retries < 2 && 100,
  },
} satisfies ClientOptions;

/** How long Sentinels are waited for until they count as down, in milliseconds: those of a client that is given may hang without end. */
const SENTINELS_LIMIT_MS = 5_000;

/** Options over others. A URL becomes options: node-redis ignores what is after its "?". */
function merged(own: ClientOptions, { url, ...given }: ClientOptions = {}): ClientOptions {
  const options = { ...own, ...given, socket: { ...own.socket, ...given.socket } };
  if (url !== undefined) return merged(options, optionsOf(url));
  const { password, credentialsProvider } = options;
  if (credentialsOf(options).usernames.length > 0 && !password && !credentialsProvider) {
    throw new LockOptionsError(
      'A URL or options for node-redis have a username without a password: it would not log in, and locks would be taken ' +
        `as the user "default". Give a password, too; a user who needs none takes any. ${VARIABLE_HINT}`,
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
 * The master has a connection of its own, which is closed with the locks: the client of a Sentinel sends again what was in flight
 * when a connection broke, and a lock would be acquired for a call that has given up.
 */
function sentinelAdapter(sentinel: SentinelClient, isOwned: boolean, given: ClientOptions = {}): RedisClient {
  // A message that tells of a failover may be lost: the Sentinels are asked anew, as node-redis does where a master is read-only.
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
  // node-redis 5 stays open, and asks no Sentinel again.
  const closeAgain = async (error: unknown) => {
    await sentinel.destroy();
    throw error;
  };
  let asking: Promise<Client> | undefined;
  const another = async (options: ClientOptions): Promise<Client> => {
    asking ??= ask().finally(() => (asking = undefined)); // one at a time: it may hang
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
  const keyPrefix = given.keyPrefix ?? sentinel._keyPrefix ?? ''; // node-redis 5 keeps none
  const adapter = new NodeRedisAdapter({ name, isOwned: true, asksAgain: true, keyPrefix, another, onClose });
  // The connection to the master has the same troubles, and reports them.
  makeRoom(sentinel, 1);
  ignoreErrors(sentinel).on('topology-change', onFailover);
  return adapter;
}

function nameOf({ options }: Client): string {
  const { host = 'localhost', port = 6379, path } = options?.socket ?? {};
  return path ?? `${host}:${port}`;
}

/** The options of a URL, as it is understood for ioredis, too. */
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
