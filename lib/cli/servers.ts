import { readFileSync } from 'node:fs';
import { firstInstalled } from '../compose/open-client.js';
import { loadIoredis } from '../stores/redis/ioredis/ioredis.js';
import { nodeRedis } from '../stores/redis/node-redis/node-redis-driver.js';
import type { RedisOptions, RedisSource } from '../stores/redis/client/source.js';
import { UsageError, type CommandLine } from './command-line.js';
import { clusterOfNodeRedis, optionsOfNodeRedis } from './node-redis-options.js';

export type Servers = { redis: RedisSource } | { redlock: RedisSource[] } | Database;

/** A database that has a table of locks. */
type Database = ({ postgres: string } | { mysql: string }) & { table?: string };

/** The login and TLS options of all servers, unless a URL has its own. */
type Access = Pick<RedisOptions, 'username' | 'password' | 'tls'>;

/** A package for Redis. */
type Client = 'ioredis' | 'redis';

/** Returns the installed package for Redis; ioredis if both are installed. @throws LockOptionsError if none is */
export async function installedClient(): Promise<Client> {
  return (await firstInstalled()) === nodeRedis ? 'redis' : 'ioredis';
}

/**
 * Returns the servers that the options or `REDIS_URL` name. User name, password and TLS come from the environment, since other users
 * of the machine can see command lines.
 * @param client the package whose options describe the servers
 * @throws UsageError, which repeats no value
 */
export function serversOf(
  { options }: Pick<CommandLine, 'options'>,
  env: NodeJS.ProcessEnv,
  client: Client = 'ioredis',
): Servers {
  const { redis, redlock, cluster, sentinel, 'sentinel-name': name, postgres, mysql, prefix, table } = options;
  const given = Object.entries({ redis, redlock, cluster, sentinel, postgres, mysql }).flatMap(([option, value]) =>
    value === undefined ? [] : [`--${option}`],
  );
  if (given.length > 1) throw new UsageError(`Give only one of ${given.join(' and ')}.`);
  if ((sentinel === undefined) !== (name === undefined)) {
    throw new UsageError('--sentinel host:port,… and --sentinel-name, the name of the master, must be given together.');
  }
  if (postgres !== undefined || mysql !== undefined) {
    if (prefix !== undefined) throw new UsageError('--prefix is for Redis: for a database, use --table.');
    return postgres === undefined ? { mysql: withPassword(mysql!, env.MYSQL_PWD), table } : { postgres, table };
  }
  if (table !== undefined)
    throw new UsageError('--table is for a database: name the database with --postgres or --mysql.');
  const access = accessOf(env);
  const asSource = (of: RedisOptions): RedisSource => (client === 'redis' ? optionsOfNodeRedis(of) : of);
  if (redlock) return { redlock: listOf(redlock).map((url) => asSource(optionsOf('--redlock', url, access))) };
  if (cluster) {
    const nodes = nodesOf(listOf(cluster), access);
    return { redis: client === 'redis' ? clusterOfNodeRedis(nodes) : clusterOf(nodes) };
  }
  if (sentinel) return { redis: asSource(sentinelOf(listOf(sentinel), name!, access, env)) };
  if (redis !== undefined) return { redis: asSource(optionsOf('--redis', redis, access)) };
  if (env.REDIS_URL) return { redis: asSource(optionsOf('REDIS_URL', env.REDIS_URL, access)) };
  if (env.REDIS_URL === '') {
    throw new UsageError(
      'REDIS_URL is empty: set it to a URL like redis://host:6379, or name the servers with --redis, --redlock, --cluster, --sentinel, --postgres or --mysql.',
    );
  }
  throw new UsageError(
    'Name the servers: --redis, --redlock, --cluster, --sentinel, --postgres or --mysql, or set REDIS_URL.',
  );
}

/** Adds MYSQL_PWD to a URL, since `mysql2` does not read it. Returns an invalid URL unchanged; opening it fails. */
function withPassword(text: string, password: string | undefined): string {
  if (!password || !URL.canParse(text)) return text;
  const url = new URL(text);
  if (url.password === '') url.password = encodeURIComponent(password);
  return url.href;
}

function accessOf(env: NodeJS.ProcessEnv): Access {
  const { REDIS_USERNAME, REDIS_PASSWORD, REDIS_TLS = '', REDIS_TLS_CA } = env;
  if (!['', '0', '1', 'true', 'false'].includes(REDIS_TLS)) throw new UsageError('REDIS_TLS must be 1 or 0.');
  const access: Access = {};
  if (REDIS_USERNAME) access.username = REDIS_USERNAME;
  if (REDIS_PASSWORD) access.password = REDIS_PASSWORD;
  if (REDIS_TLS_CA) access.tls = { ca: readCertificate(REDIS_TLS_CA) };
  else if (REDIS_TLS === '1' || REDIS_TLS === 'true') access.tls = {};
  return access;
}

/**
 * Removes the credentials of the Redis of the locks from the environment of a command. An address without credentials stays: it is
 * not secret, and the command may need it.
 */
export function withoutCredentials(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { REDIS_USERNAME: _user, REDIS_PASSWORD: _password, REDIS_SENTINEL_PASSWORD: _sentinel, ...others } = env;
  if (others.REDIS_URL?.includes('@')) delete others.REDIS_URL; // credentials come before an @, even in a malformed URL
  return others;
}

function readCertificate(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UsageError(`The file that REDIS_TLS_CA names cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}

/** Parses a URL into options of ioredis. ioredis itself would accept any option in the query. */
function optionsOf(origin: string, text: string, access: Access): RedisOptions {
  if (text.startsWith('/')) return { ...access, path: text };
  const malformed = `${origin} must be a URL like redis://host:6379, or rediss:// for TLS, or the /path of a socket.`;
  if (!/^rediss?:\/\/./.test(text) || !URL.canParse(text)) throw new UsageError(malformed);
  const url = new URL(text);
  const { protocol, hostname, port, username, password, pathname, searchParams, hash } = url;
  // An unescaped # in a password ends the URL there, and the text before it would count as host and port.
  if (hostname === '' || !/^(\/\d*)?$/.test(pathname) || hash !== '') throw new UsageError(malformed);
  for (const name of searchParams.keys()) {
    if (name !== 'family')
      throw new UsageError(`${origin} has an unknown setting after its "?": only family is allowed.`);
  }
  const options: RedisOptions = { ...access, host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || 6379) };
  try {
    if (username) options.username = decodeURIComponent(username);
    if (password) options.password = decodeURIComponent(password);
  } catch {
    throw new UsageError(`${origin} has a user name or a password with a % that must be written as %25.`);
  }
  if (pathname.length > 1) options.db = Number(pathname.slice(1));
  const family = searchParams.get('family');
  if (family !== null) options.family = Number(family);
  if (protocol === 'rediss:') options.tls ??= {};
  return options;
}

/** Parses the nodes of a Cluster. The login of the first node is used for all. */
function nodesOf(urls: string[], access: Access): RedisOptions[] {
  const nodes = urls.map((url) => optionsOf('--cluster', url, access));
  if (nodes.some(({ host, db }) => host === undefined || db)) {
    throw new UsageError('--cluster must be a URL with a host, and without a database: a Cluster has only one.');
  }
  return nodes;
}

function clusterOf(nodes: readonly RedisOptions[]): RedisSource {
  const [{ username, password, tls, family } = {}] = nodes;
  return async () => {
    const { Cluster } = await loadIoredis();
    return new Cluster(
      nodes.map(({ host, port }) => ({ host, port })),
      {
        lazyConnect: true,
        redisOptions: { username, password, tls, family },
        // Connect by name, since certificates are for names and not for addresses.
        ...(tls && { dnsLookup: (host: string, done: (error: null, address: string) => void) => done(null, host) }),
      },
    );
  };
}

function sentinelOf(addresses: string[], name: string, access: Access, env: NodeJS.ProcessEnv): RedisOptions {
  const sentinels = addresses.map((address) => {
    const [, host, port] = /^([^:/@\s]+|\[[^\]/@]+\])(?::(\d{1,5}))?$/.exec(address) ?? [];
    if (host === undefined) throw new UsageError('--sentinel must be a list of host:port.');
    return { host: host.replace(/^\[(.*)\]$/, '$1'), port: Number(port ?? 26_379) };
  });
  const { tls } = access;
  return {
    ...access,
    sentinels,
    name,
    ...(env.REDIS_SENTINEL_PASSWORD && { sentinelPassword: env.REDIS_SENTINEL_PASSWORD }),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  };
}

/** Returns the items of an option that was repeated or has commas. A comma in the password of a URL does not separate items. */
function listOf(values: readonly string[]): string[] {
  return values.flatMap((value) => value.split(/,(?=\s*rediss?:\/\/|[^@]*$)/).map((item) => item.trim()));
}
