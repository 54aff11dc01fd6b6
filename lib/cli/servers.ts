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

/** What all servers are logged in to with, unless their URL says otherwise. */
type Access = Pick<RedisOptions, 'username' | 'password' | 'tls'>;

/** A package for Redis. */
type Client = 'ioredis' | 'redis';

/** The package for Redis that is installed; ioredis if both are. @throws LockOptionsError where none is */
export async function installedClient(): Promise<Client> {
  return (await firstInstalled()) === nodeRedis ? 'redis' : 'ioredis';
}

/**
 * The servers that the options name, or `REDIS_URL`. User, password and TLS come from the environment: other users of the
 * machine can see command lines.
 * @param client what servers are described for
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
    throw new UsageError('--sentinel host:port,… and --sentinel-name, the name of the master, belong together.');
  }
  if (postgres !== undefined || mysql !== undefined) {
    if (prefix !== undefined)
      throw new UsageError('--prefix is for Redis: in a database name the table, with --table.');
    return postgres === undefined ? { mysql: withPassword(mysql!, env.MYSQL_PWD), table } : { postgres, table };
  }
  if (table !== undefined) throw new UsageError('--table is for a database: name that with --postgres or --mysql.');
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

/** `mysql2` does not read that variable, as the programs of MySQL and MariaDB do. What is no URL is refused by who opens it. */
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
 * The environment of a command that has no business with the Redis of the locks. An address alone is no secret, and the command may
 * mean the same Redis by it.
 */
export function withoutCredentials(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { REDIS_USERNAME: _user, REDIS_PASSWORD: _password, REDIS_SENTINEL_PASSWORD: _sentinel, ...others } = env;
  if (others.REDIS_URL?.includes('@')) delete others.REDIS_URL; // before it stand credentials, also in a URL that is malformed
  return others;
}

function readCertificate(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UsageError(`The file of REDIS_TLS_CA cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}

/** The options of ioredis for a URL. ioredis would take any option from its query. */
function optionsOf(origin: string, text: string, access: Access): RedisOptions {
  if (text.startsWith('/')) return { ...access, path: text };
  const malformed = `${origin} must be a URL like redis://host:6379, or rediss:// for TLS, or the /path of a socket.`;
  if (!/^rediss?:\/\/./.test(text) || !URL.canParse(text)) throw new UsageError(malformed);
  const url = new URL(text);
  const { protocol, hostname, port, username, password, pathname, searchParams, hash } = url;
  // A password with a # that is not escaped ends the URL there: what comes before it would be taken for a host and its port.
  if (hostname === '' || !/^(\/\d*)?$/.test(pathname) || hash !== '') throw new UsageError(malformed);
  for (const name of searchParams.keys()) {
    if (name !== 'family') throw new UsageError(`${origin} has a setting after its "?" that is not known here.`);
  }
  const options: RedisOptions = { ...access, host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || 6379) };
  try {
    if (username) options.username = decodeURIComponent(username);
    if (password) options.password = decodeURIComponent(password);
  } catch {
    throw new UsageError(`${origin} has a user or password with a % that must be written as %25.`);
  }
  if (pathname.length > 1) options.db = Number(pathname.slice(1));
  const family = searchParams.get('family');
  if (family !== null) options.family = Number(family);
  if (protocol === 'rediss:') options.tls ??= {};
  return options;
}

/** Nodes of a Cluster. All are logged in to as the first one is. */
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
        // Certificates are for names, not for the addresses that these stand for.
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

/** The items of an option that was repeated, or has commas. A comma in a password of a URL is part of it. */
function listOf(values: readonly string[]): string[] {
  return values.flatMap((value) => value.split(/,(?=\s*rediss?:\/\/|[^@]*$)/).map((item) => item.trim()));
}
