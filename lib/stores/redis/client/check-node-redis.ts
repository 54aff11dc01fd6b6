import { IS_IT_SET, isDatabase, isPort, kindOf, nearTo, numberOrKind, problemOfUrl } from './check-values.js';
import type { ClientOptions, ClusterOptions, NodeRedisOptions, SentinelOptions } from './source.js';

/**
 * The options of node-redis 5.10 and later, which ignores any other name. The compiler refuses these lists when they differ from those of
 * the installed version. 6.0 added `himportRegistry`, `keyPrefix` and `topologyRefreshOnReconnectionAttemptStrategy`, and dropped
 * `unstableResp3`.
 */
const OF_CLIENT: Readonly<Record<keyof ClientOptions | 'unstableResp3', true>> = {
  RESP: true,
  clientInfoTag: true,
  clientSideCache: true,
  commandOptions: true,
  commandsQueueMaxLength: true,
  credentialsProvider: true,
  database: true,
  disableClientInfo: true,
  disableOfflineQueue: true,
  emitInvalidate: true,
  functions: true,
  himportRegistry: true,
  keyPrefix: true,
  maintEndpointType: true,
  maintNotifications: true,
  maintRelaxedCommandTimeout: true,
  maintRelaxedSocketTimeout: true,
  modules: true,
  name: true,
  password: true,
  pingInterval: true,
  readonly: true,
  scripts: true,
  socket: true,
  unstableResp3: true,
  url: true,
  username: true,
};
const OF_CLUSTER: Readonly<Record<keyof ClusterOptions | 'unstableResp3', true>> = {
  RESP: true,
  clientSideCache: true,
  commandOptions: true,
  defaults: true,
  functions: true,
  himportRegistry: true,
  keyPrefix: true,
  maxCommandRedirections: true,
  minimizeConnections: true,
  modules: true,
  nodeAddressMap: true,
  rootNodes: true,
  scripts: true,
  topologyRefreshOnReconnectionAttemptStrategy: true,
  unstableResp3: true,
  useReplicas: true,
};
const OF_SENTINEL: Readonly<Record<keyof SentinelOptions | 'unstableResp3', true>> = {
  RESP: true,
  clientSideCache: true,
  commandOptions: true,
  functions: true,
  keyPrefix: true,
  masterPoolSize: true,
  maxCommandRediscovers: true,
  modules: true,
  name: true,
  nodeAddressMap: true,
  nodeClientOptions: true,
  passthroughClientErrorEvents: true,
  replicaPoolSize: true,
  reserveClient: true,
  scanInterval: true,
  scripts: true,
  sentinelClientOptions: true,
  sentinelRootNodes: true,
  unstableResp3: true,
};
const OF_A_SENTINEL = { host: true, port: true } as const;

/** Options of a socket that say where a server is. All others are of Node.js, and differ from version to version. */
const OF_SOCKET = ['host', 'port', 'path', 'tls'];

/** What options of node-redis have that say where the servers are, of which those of ioredis have none. */
export const ADDRESSES = ['url', 'socket', 'rootNodes', 'sentinelRootNodes'] as const;

type Given = Readonly<Record<string, unknown>>;

/** Whether a source are options of node-redis: known by what says where the servers are. */
export function isNodeRedisOptions(source: unknown): source is NodeRedisOptions {
  return isGiven(source) && ADDRESSES.some((name) => source[name] !== undefined);
}

/** @param ofIoredis the names of the options of ioredis */
export function problemOfNodeRedis(source: object, ofIoredis: readonly string[]): string | undefined {
  const given = source as Given;
  const [taker, names] =
    'rootNodes' in given
      ? (['createCluster', OF_CLUSTER] as const)
      : 'sentinelRootNodes' in given
        ? (['createSentinel', OF_SENTINEL] as const)
        : (['createClient', OF_CLIENT] as const);
  const unknown = unknownName(given, names);
  if (unknown !== undefined && ofIoredis.includes(unknown)) {
    return `options of node-redis with ${quoted(unknown)}, which is an option of ioredis. Give those of one of them.`;
  }
  if (unknown !== undefined) return notAnOption(unknown, taker, names);
  if (taker === 'createClient') return problemOfServer('', given);
  const { name, rootNodes, defaults, sentinelRootNodes, nodeClientOptions, sentinelClientOptions } = given;
  if (taker === 'createCluster') {
    const { tls } = isGiven(defaults) ? socketOf(defaults) : {};
    return problemOfNodes('rootNodes', rootNodes, OF_CLIENT, tls) ?? problemOfAll('defaults.', defaults);
  }
  if (typeof name !== 'string' || name === '') return `sentinelRootNodes without the name of the master. ${IS_IT_SET}`;
  return (
    problemOfNodes('sentinelRootNodes', sentinelRootNodes, OF_A_SENTINEL) ??
    problemOfAll('nodeClientOptions.', nodeClientOptions) ??
    problemOfAll('sentinelClientOptions.', sentinelClientOptions)
  );
}

/** @param tls whether nodes that do not say so use TLS */
function problemOfNodes(
  list: string,
  nodes: unknown,
  names: Readonly<Record<string, true>>,
  tls?: unknown,
): string | undefined {
  if (!Array.isArray(nodes) || nodes.length === 0) return `${list} that is not a list of servers. ${IS_IT_SET}`;
  for (const [number, node] of (nodes as unknown[]).entries()) {
    const at = `${list}[${number}].`;
    const given = isGiven(node) ? node : {};
    const unknown = unknownName(given, names);
    if (unknown !== undefined) return notAnOption(unknown, list, names, at);
    const socket = names === OF_A_SENTINEL ? given : socketOf(given);
    if (!given.url && !socket.host) {
      return `${list} with a server that has no url and no host, so node-redis would connect to localhost. ${IS_IT_SET}`;
    }
    const problem = names === OF_A_SENTINEL ? problemOfPort(at, given) : problemOfServer(at, given, tls);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** @param at where it is in the options, with a dot */
function problemOfServer(at: string, given: Given, tls?: unknown): string | undefined {
  const { url } = given;
  if (url !== undefined && typeof url !== 'string') return `${at}url ${kindOf(url)}. ${IS_IT_SET}`;
  if (url?.startsWith('/')) return `${at}url that is the path of a socket. Write socket: { path }.`;
  const problem = (url === undefined ? undefined : problemOfUrl(url)) ?? problemOfSettings(at, given);
  if (problem !== undefined) return problem;
  const socket = socketOf(given);
  if (url !== undefined) return problemBesideUrl(at, new URL(url), given.database, { tls, ...socket });
  if (socket.path || socket.host) return undefined;
  return `options of node-redis with no url, socket.host or socket.path, so it would connect to localhost. ${IS_IT_SET}`;
}

/** Of options that apply to several servers. */
function problemOfAll(at: string, given: unknown): string | undefined {
  return isGiven(given) && given.url !== undefined
    ? `options of node-redis with ${quoted(`${at}url`)}, where they are for all servers. Give what it says besides the address as options.`
    : problemOfSettings(at, given);
}

/** Of options that apply to one server, or to several. */
function problemOfSettings(at: string, given: unknown): string | undefined {
  if (!isGiven(given)) return undefined;
  const unknown = unknownName(given, OF_CLIENT);
  if (unknown !== undefined) return notAnOption(unknown, 'createClient', OF_CLIENT, at);
  if (at !== '' && given.keyPrefix !== undefined) {
    return `options of node-redis with ${quoted(`${at}keyPrefix`)}, which it ignores. Give keyPrefix beside that.`;
  }
  const { database = 0 } = given;
  if (!isDatabase(database)) return `${at}database ${numberOrKind(database)}, which is not a database. ${IS_IT_SET}`;
  const socket = socketOf(given);
  const meant = Object.keys(socket)
    .filter((name) => !OF_SOCKET.includes(name))
    .map((name) => [name, name === 'hostname' ? 'host' : nearTo(name, OF_SOCKET)] as const)
    .find(([, near]) => near !== undefined);
  if (meant) {
    return `options of node-redis with ${quoted(`${at}socket.${meant[0]}`)}, which is not an option of it. Did you mean ${meant[1]}?`;
  }
  return problemOfPort(`${at}socket.`, socket);
}

function problemOfPort(at: string, { port }: Given): string | undefined {
  if (port === undefined || isPort(Number(port))) return undefined;
  return `${at}port ${numberOrKind(port)}, which is not a port. ${IS_IT_SET}`;
}

/** Of options that say something else than the URL beside them: those of a client that was made of a URL have both. */
function problemBesideUrl(at: string, url: URL, database: unknown, socket: Given): string | undefined {
  const { host, port, path, tls } = socket;
  const ofUrl = url.pathname.slice(1) || url.searchParams.get('db');
  const differ = (what: string) => `options of node-redis with ${what} that differ. Give one of them.`;
  if (
    path !== undefined ||
    (host !== undefined && host !== url.hostname.replace(/^\[(.*)\]$/, '$1')) ||
    (port !== undefined && Number(port) !== Number(url.port || 6379))
  ) {
    return differ(`two addresses, ${at}url and ${at}socket,`);
  }
  if (database !== undefined && ofUrl !== null && Number(ofUrl) !== Number(database)) {
    return differ(`two databases, in ${at}url and ${at}database,`);
  }
  if (tls === undefined || tls === (url.protocol === 'rediss:')) return undefined;
  return `options of node-redis with ${at}url and a socket.tls that differ. Write rediss:// for TLS, and redis:// for none.`;
}

function unknownName(given: Given, names: Readonly<Record<string, true>>): string | undefined {
  return Object.keys(given).find((name) => !Object.hasOwn(names, name) && given[name] !== undefined);
}

function notAnOption(unknown: string, taker: string, names: Readonly<Record<string, true>>, at = ''): string {
  const near = nearTo(unknown, Object.keys(names));
  const advice =
    near === undefined
      ? 'If a newer redis has it, give a function: () => createClient({ … }).'
      : `Did you mean ${near}?`;
  return `options of node-redis with ${quoted(at + unknown)}, which is not an option of ${taker}. ${advice}`;
}

function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 40));
}

function socketOf({ socket }: Given): Given {
  return isGiven(socket) ? socket : {};
}

function isGiven(value: unknown): value is Given {
  return typeof value === 'object' && value !== null;
}
