import { LockOptionsError } from '../../../api/errors.js';
import { isClass, isFunction } from '../../../core/options/checks.js';
import {
  VARIABLE_HINT,
  kindOf,
  numberOrKind,
  problemOfAddress,
  URL_OBJECT_PROBLEM,
  withoutAddress,
  type Given,
} from '../../node/address.js';
import type { IoredisClient, NodeRedisClient, NodeRedisOptions } from './source.js';

// Messages repeat no value, since it may contain a password.

const CLIENT_ADVICE = 'Give a client of ioredis 5.4 or later, or of redis 5.10 or later, or the URL by itself.';
const ENCODING_ADVICE =
  'Special characters in the user name and the password must be encoded: % as %25, # as %23, / as %2F.';
const HTTP = /^https?:\/\//i;
const HTTP_PROBLEM =
  'a Redis that is reached by HTTP. Locks need a connection on which the server can send messages: ' +
  'give the redis:// or rediss:// URL of the same server.';
const SEVERAL_ADDRESSES = 'options with several kinds of addresses. Give one of them.';
const NO_ADDRESS = withoutAddress('host, path, url, sentinels or rootNodes');

/**
 * Refuses a source with which a client would silently connect to localhost. If processes lock on different servers, two can hold one lock.
 * @param name the name of the option, for the message
 * @throws LockOptionsError
 */
export function checkSource(name: string, source: unknown): void {
  if (isFunction(source) && !isClass(source)) return; // `checkMade` checks its result
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
  const couldBeOptions = typeof made === 'string' || isGiven(made);
  const problem =
    problemOfLookalike(made) ??
    `${kindOf(made)}.${couldBeOptions ? ' Return new Redis(…) or createClient(…) with what it returns now.' : ''}`;
  throw new LockOptionsError(
    `A function given as a Redis source must return a client of ioredis or node-redis: got ${problem}`,
  );
}

/** Whether a source is a client of either package. */
export function isClient(source: unknown): source is IoredisClient | NodeRedisClient {
  return isIoredisClient(source) || isNodeRedisClient(source);
}

/** Whether a source is a client of ioredis. It checks the methods and not the class, since the application may have another copy of ioredis. */
export function isIoredisClient(source: unknown): source is IoredisClient {
  const { evalsha, status } = (source ?? {}) as Partial<IoredisClient>;
  return typeof evalsha === 'function' && typeof status === 'string';
}

/** Whether a source is a client of node-redis for one server, a Sentinel or a Cluster. */
export function isNodeRedisClient(source: unknown): source is NodeRedisClient {
  const { EVALSHA, destroy, isOpen } = (source ?? {}) as Partial<NodeRedisClient>;
  const hasCommands = typeof EVALSHA === 'function' && typeof isOpen === 'boolean' && typeof destroy === 'function';
  return hasCommands && !isPool(source as object);
}

/** Whether a source is an options object of node-redis. The names of its address options differ from those of ioredis. */
export function isNodeRedisOptions(source: unknown): source is NodeRedisOptions {
  if (!isGiven(source)) return false;
  const { url, socket, rootNodes, sentinelRootNodes } = source;
  return [url, socket, rootNodes, sentinelRootNodes].some((address) => address !== undefined);
}

function isGiven(value: unknown): value is Given {
  return typeof value === 'object' && value !== null;
}

function isPool(source: object): boolean {
  return 'totalClients' in source;
}

/** Describes a value that resembles a client or options. */
function problemOfLookalike(source: unknown): string | undefined {
  if (!isGiven(source)) return undefined;
  const { then, evalsha, EVALSHA, isOpen, destroy, disconnect, isPipeline, url, client } = source;
  if (typeof then === 'function') {
    return 'a Promise. Give a function that returns it, () => promise, or await it in forRootAsync.';
  }
  if (isPipeline === true) return 'a pipeline of ioredis. Give its client.';
  // The options or the client of @upstash/redis.
  const address = url ?? (client as { baseUrl?: unknown } | undefined)?.baseUrl;
  if (typeof address === 'string' && HTTP.test(address)) return HTTP_PROBLEM;
  if (isPool(source))
    return 'a pool of node-redis, whose connections have no common order. Give a client: createClient(…).';
  if (typeof EVALSHA === 'function' && typeof destroy !== 'function') {
    return typeof isOpen === 'boolean' && typeof disconnect === 'function'
      ? `a client of redis 4. ${CLIENT_ADVICE}`
      : 'the result of multi() or legacy() of a client of node-redis. Give the client itself.';
  }
  if (typeof evalsha === 'function') return `a client of another package (${classOf(source)}). ${CLIENT_ADVICE}`;
  if (Array.isArray(source)) {
    return 'an array. The nodes of a Cluster belong in a client, new Cluster(nodes), or in { rootNodes } of node-redis; independent masters in redlock.';
  }
  return source instanceof URL ? URL_OBJECT_PROBLEM : undefined;
}

function classOf(source: object): string {
  return (Object.getPrototypeOf(source) as Partial<object> | null)?.constructor?.name ?? 'Object';
}

/** Describes what is wrong with a URL or the path of a socket. */
function problemOfUrl(source: string): string | undefined {
  if (source.startsWith('/')) return undefined; // the path of a socket
  if (source.trim() === '') return `an empty string. ${VARIABLE_HINT}`;
  if (HTTP.test(source)) return HTTP_PROBLEM;
  if (!/^rediss?:\/\//.test(source) || !URL.canParse(source)) {
    return `a string of another form. Write redis://host:port, or the /path of a socket. ${ENCODING_ADVICE}`;
  }
  const { hostname, username, password } = new URL(source);
  if (![username, password].every(canDecode)) return `a URL whose user or password cannot be read. ${ENCODING_ADVICE}`;
  if (hostname === '') return 'a URL without a host, so it would mean localhost. Write redis://host:port.';
  return isDatabase(databaseOf(new URL(source)) ?? 0)
    ? undefined
    : 'a URL whose path is not the number of a database. Write redis://host:port/0.';
}

function canDecode(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function problemOfObject(source: unknown): string | undefined {
  if (isClient(source)) return undefined;
  if (isClass(source)) return 'a class. Give an object of it, new Redis(…), or its options.';
  if (!isGiven(source)) return `${kindOf(source)}.`;
  return problemOfLookalike(source) ?? problemOfOptions({ ...source }); // copied without inherited properties, like the packages do
}

function problemOfOptions(given: Given): string | undefined {
  if (given.Connector) return undefined;
  const servers = serversOf(given);
  return (
    problemOfSettings(given) ??
    (servers.length === 0 ? NO_ADDRESS : servers.map(problemOfServer).find((problem) => problem !== undefined))
  );
}

/** Describes what is wrong with options apart from their addresses. */
function problemOfSettings(given: Given): string | undefined {
  const { db = 0, database = db, rootNodes, defaults, sentinels, sentinelRootNodes, name, nodeClientOptions } = given;
  if (!isDatabase(database)) return `database ${numberOrKind(database)}, which is not a database. ${VARIABLE_HINT}`;
  if ((sentinels || sentinelRootNodes) && !name)
    return `${sentinels ? 'sentinels' : 'sentinelRootNodes'} without the name of the master. ${VARIABLE_HINT}`;
  const nodeOptions = [...listOf(rootNodes), defaults, nodeClientOptions].filter(isGiven);
  if (nodeOptions.some(({ keyPrefix }) => keyPrefix !== undefined)) {
    return 'a keyPrefix in options of nodes, where node-redis ignores it. Give it next to rootNodes or sentinelRootNodes.';
  }
  const { url, socket, path, host } = given;
  const own = isNodeRedisOptions(given) || !isDefaultHost(host) ? host : undefined;
  const addresses = [url ?? socket, rootNodes, sentinelRootNodes, sentinels, own ?? path];
  return addresses.filter(Boolean).length > 1 ? SEVERAL_ADDRESSES : undefined;
}

/** The options of a client of ioredis contain this host in addition to any other address. */
function isDefaultHost(host: unknown): boolean {
  return host === 'localhost';
}

/** Returns the options of each server. */
function serversOf(given: Given): Given[] {
  const { sentinels, rootNodes, sentinelRootNodes, defaults } = given;
  if (!isNodeRedisOptions(given)) return sentinels ? listOf(sentinels) : [given];
  if (rootNodes) return listOf(rootNodes).map((node) => withSocket(node, isGiven(defaults) ? defaults.socket : {}));
  return sentinelRootNodes ? listOf(sentinelRootNodes) : [withSocket(given)];
}

/** Returns the options of one server of node-redis. @param socket the options of all servers */
function withSocket({ url, database, socket: own }: Given, socket: unknown = {}): Given {
  const { tls } = { ...(socket as Given), ...(own as Given) };
  return { url, database, ...(own as Given), tls };
}

function listOf(nodes: unknown): Given[] {
  return Array.isArray(nodes) ? nodes.map((node) => (isGiven(node) ? node : {})) : [];
}

function problemOfServer(server: Given): string | undefined {
  const { url, host, path } = server;
  if (url === undefined) {
    if (!host && !path) return NO_ADDRESS;
    return host && path && !isDefaultHost(host) ? SEVERAL_ADDRESSES : problemOfAddress(server);
  }
  if (typeof url !== 'string') return `url ${kindOf(url)}. ${VARIABLE_HINT}`;
  if (url.startsWith('/')) return 'a url that is the path of a socket. Write socket: { path }.';
  const problem = problemOfUrl(url);
  if (problem !== undefined || agrees(new URL(url), server)) return problem;
  return 'options whose url contradicts socket or database. Give one of them, and rediss:// for TLS.';
}

/** Whether options agree with their URL. A client that was created from a URL has both. */
function agrees(url: URL, { host, port, path, tls, database }: Given): boolean {
  const ofUrl = databaseOf(url);
  return (
    path === undefined &&
    (host === undefined || host === url.hostname.replace(/^\[(.*)\]$/, '$1')) &&
    (port === undefined || Number(port) === Number(url.port || 6379)) &&
    (tls === undefined || tls === (url.protocol === 'rediss:')) &&
    (database === undefined || ofUrl === undefined || Number(ofUrl) === Number(database))
  );
}

function databaseOf({ pathname, searchParams }: URL): string | undefined {
  return pathname.slice(1) || (searchParams.get('db') ?? undefined);
}

/** For any other value ioredis selects `NaN`, and the unhandled error ends the process. */
function isDatabase(db: unknown): boolean {
  return /^\d+$/.test(String(db));
}
