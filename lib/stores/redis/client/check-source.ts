import { LockOptionsError } from '../../../api/errors.js';
import { ADDRESSES, isNodeRedisOptions, problemOfNodeRedis } from './check-node-redis.js';
import {
  BY_HTTP,
  HTTP,
  IS_IT_SET,
  isDatabase,
  isPort,
  kindOf,
  nearTo,
  numberOrKind,
  problemOfUrl,
} from './check-values.js';
import type { IoredisClient, NodeRedisClient, RedisOptions } from './source.js';

/**
 * The options of ioredis 5.4 and later. ioredis ignores any other name, and connects to localhost where it finds no server.
 * The compiler refuses this list when it differs from that of the installed version. 6.0 added `himportFieldsets`,
 * `protocol` and `replyMapping`, 5.11 had `blockingTimeout`, `blockingTimeoutGrace`, `clientInfoTag` and
 * `disableClientInfo` beyond those of 5.4.
 */
const OPTIONS: Readonly<Record<keyof RedisOptions, true>> = {
  Connector: true,
  autoPipeliningIgnoredCommands: true,
  autoResendUnfulfilledCommands: true,
  autoResubscribe: true,
  blockingTimeout: true,
  blockingTimeoutGrace: true,
  clientInfoTag: true,
  commandQueue: true,
  commandTimeout: true,
  connectTimeout: true,
  connectionName: true,
  db: true,
  disableClientInfo: true,
  disconnectTimeout: true,
  enableAutoPipelining: true,
  enableOfflineQueue: true,
  enableReadyCheck: true,
  enableTLSForSentinelMode: true,
  failoverDetector: true,
  family: true,
  himportFieldsets: true,
  host: true,
  keepAlive: true,
  keyPrefix: true,
  lazyConnect: true,
  maxLoadingRetryTime: true,
  maxRetriesPerRequest: true,
  monitor: true,
  name: true,
  natMap: true,
  noDelay: true,
  offlineQueue: true,
  password: true,
  path: true,
  port: true,
  preferredSlaves: true,
  protocol: true,
  readOnly: true,
  reconnectOnError: true,
  replyMapping: true,
  retryStrategy: true,
  role: true,
  scripts: true,
  sentinelCommandTimeout: true,
  sentinelMaxConnections: true,
  sentinelPassword: true,
  sentinelReconnectStrategy: true,
  sentinelRetryStrategy: true,
  sentinelTLS: true,
  sentinelUsername: true,
  sentinels: true,
  showFriendlyErrorStack: true,
  socketTimeout: true,
  stringNumbers: true,
  tls: true,
  updateSentinels: true,
  username: true,
};
const NAMES = Object.keys(OPTIONS);

const WITHIN = 'Give its contents directly: { host, port }.';
const OF_A_CLUSTER =
  'A Cluster is given as a client, new Cluster(nodes, options), or with node-redis as { rootNodes }.';

/** Advice for names that are no options of ioredis. */
const MEANT = new Map([
  ['uri', "Give the URL by itself: 'redis://host:port'."],
  ['connection', WITHIN], // BullMQ
  ['config', WITHIN],
  ['options', WITHIN],
  ['redis', WITHIN],
  ['redisOptions', OF_A_CLUSTER],
  ['clusterRetryStrategy', OF_A_CLUSTER],
  ['nodes', OF_A_CLUSTER],
  ['hostname', 'Did you mean host?'],
  ['database', 'Did you mean db?'],
  ['user', 'Did you mean username?'],
  ['pass', 'Did you mean password?'],
]);

const GIVE_ONE = 'Give one of ioredis 5.4 or later or 6, or of redis 5.10 or later or 6, or the URL by itself.';
const A_NEWER_OPTION = 'If a newer ioredis has it, give a function: () => new Redis({ … }).';

/**
 * Refuses a source with which a client would silently connect to localhost: locks on different servers can have two holders.
 * Messages repeat no value, as it may hold a password.
 * @param name the name of the option, for the message
 * @throws LockOptionsError
 */
export function checkSource(name: string, source: unknown): void {
  if (typeof source === 'function') return; // its result is checked when it has been called
  const problem = typeof source === 'string' ? problemOfUrl(source) : problemOfObject(source);
  if (problem === undefined) return;
  throw new LockOptionsError(
    `${name} must be a redis:// or rediss:// URL, options or a client of ioredis or node-redis, or a function that returns ` +
      `a client: got ${problem}`,
  );
}

/**
 * Checks the result of a function that was given as a source.
 * @throws LockOptionsError
 */
export function checkMade(made: unknown): asserts made is IoredisClient | NodeRedisClient {
  if (isClient(made)) return;
  const isAsOptions = typeof made === 'string' || (typeof made === 'object' && made !== null);
  const problem =
    mistaken(made) ??
    `${kindOf(made)}.${isAsOptions ? ' Return new Redis(…) or createClient(…) with what it returns now.' : ''}`;
  throw new LockOptionsError(
    `A function given as a Redis source must return a client of ioredis or node-redis: got ${problem}`,
  );
}

/** Whether a source is a client of either package. */
export function isClient(source: unknown): source is IoredisClient | NodeRedisClient {
  return isIoredisClient(source) || isNodeRedisClient(source);
}

/** Whether a source is a client of ioredis: known by its form, not its class, as the application may have an ioredis of its own. */
export function isIoredisClient(source: unknown): source is IoredisClient {
  const { evalsha, status } = (source ?? {}) as Partial<IoredisClient>;
  return typeof evalsha === 'function' && typeof status === 'string';
}

/** Whether a source is a client of node-redis, for one server, a Sentinel or a Cluster. */
export function isNodeRedisClient(source: unknown): source is NodeRedisClient {
  const { EVALSHA, destroy, isOpen } = (source ?? {}) as Partial<NodeRedisClient>;
  const isOfVersion5 = typeof EVALSHA === 'function' && typeof isOpen === 'boolean' && typeof destroy === 'function';
  return isOfVersion5 && !isPool(source as object);
}

function isPool(source: object): boolean {
  return 'totalClients' in source;
}

function problemOfObject(source: unknown): string | undefined {
  if (isClient(source)) return undefined;
  const mistake = mistaken(source);
  if (mistake !== undefined) return mistake;
  if (isNodeRedisOptions(source)) return problemOfNodeRedis(source, NAMES);
  if (typeof source !== 'object' || source === null) return `${kindOf(source)}.`;
  const given = Object.keys(source);
  const unknown = given.find((name) => !Object.hasOwn(OPTIONS, name) && source[name as never] !== undefined);
  if (unknown !== undefined) {
    return `an object with ${JSON.stringify(unknown.slice(0, 40))}, which is not an option of ioredis. ${adviceOn(unknown)}`;
  }
  const { db = 0 } = source as RedisOptions;
  if (!isDatabase(db)) return `db ${numberOrKind(db)}, which is not a database. ${IS_IT_SET}`;
  return problemOfAddress(source, given);
}

function problemOfAddress(source: RedisOptions, given: string[]): string | undefined {
  const { Connector, sentinels, path, host, port } = source;
  if (Connector || sentinels || path) return undefined;
  // ioredis also takes text, the form of environment variables.
  if (port !== undefined && !isPort(Number(port))) {
    return `port ${numberOrKind(port)}, which is not a port. ${IS_IT_SET}`;
  }
  if (host) return undefined;
  if (given.includes('host')) {
    const got = host === '' ? '""' : String(host);
    return `host ${got}, so ioredis would connect to localhost. ${IS_IT_SET}`;
  }
  if (port) return undefined;
  if (ADDRESSES.some((name) => given.includes(name))) return problemOfNodeRedis(source, NAMES);
  return (
    `${given.length === 0 ? 'an object' : 'options'} with no host, port, path or sentinels, so ioredis would connect to ` +
    'localhost:6379. Name the server, even if that is the one you mean.'
  );
}

/** Describes a value that is neither an ioredis client nor options, but is easily mistaken for one of them. */
function mistaken(source: unknown): string | undefined {
  if (typeof source !== 'object' || source === null) return undefined;
  const { then, evalsha, EVALSHA, isOpen, destroy, disconnect, isPipeline, url, client } = source as Record<
    string,
    unknown
  >;
  if (typeof then === 'function') {
    return 'a Promise. Give a function that returns it, () => promise, or await it in forRootAsync.';
  }
  if (isPipeline === true) return 'a pipeline of ioredis. Give its client.';
  // The options of @upstash/redis, and its client, whose class has no name.
  const address = url ?? (client as { baseUrl?: unknown } | undefined)?.baseUrl;
  if (typeof address === 'string' && HTTP.test(address)) return BY_HTTP;
  if (isPool(source))
    return 'a pool of node-redis, whose connections have no common order. Give a client: createClient(…).';
  if (typeof EVALSHA === 'function' && typeof destroy !== 'function') {
    return typeof isOpen === 'boolean' && typeof disconnect === 'function'
      ? `a client of redis 4. ${GIVE_ONE}`
      : 'what multi() or legacy() of a client of node-redis returns. Give the client itself.';
  }
  if (typeof evalsha === 'function') {
    return `a client of neither (${classOf(source)}). ${GIVE_ONE}`;
  }
  if (Array.isArray(source)) {
    return 'an array. The nodes of a Cluster belong in a client, new Cluster(nodes), or in { rootNodes } of node-redis; independent masters in redlock.';
  }
  if (source instanceof URL) return 'a URL object. Give its text: url.href.';
  if (Object.keys(source).length === 0 && classOf(source) !== 'Object') {
    return `an object of the class ${classOf(source)} without options of its own. Give a plain object: { host, port }.`;
  }
  return undefined;
}

function classOf(source: object): string {
  return (Object.getPrototypeOf(source) as Partial<object> | null)?.constructor?.name ?? 'Object';
}

function adviceOn(unknown: string): string {
  const meant = MEANT.get(unknown);
  if (meant !== undefined) return meant;
  const near = nearTo(unknown, NAMES);
  if (near !== undefined) return `Did you mean ${near}?`;
  const address = nearTo(unknown, ADDRESSES);
  return address === undefined ? A_NEWER_OPTION : `Did you mean ${address} of node-redis?`;
}
