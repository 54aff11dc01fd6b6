// The only types of the packages for Redis in lib/. Those of a package are unknown in an application that has it not because it needs it
// not: the next lines let it compile our declarations all the same. Only comments of this form are kept in them.
/** @ts-ignore: ioredis is optional. */
import type { Cluster, Redis, RedisOptions } from 'ioredis';
/** @ts-ignore: node-redis is optional. */
import type * as redis from 'redis';

export type { Cluster, Redis, RedisOptions };

/** A type, or nothing where it is unknown: it would take away the checks of all others in a union. */
type Known<T> = [unknown] extends [T] ? never : T;

/** A client of ioredis. */
export type IoredisClient = Known<Redis> | Known<Cluster>;

/** A client of node-redis (the package `redis`), from `createClient`, `createSentinel` or `createCluster`. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): unknown;
  sendCommand(...args: never[]): Promise<unknown>;
  EVALSHA(...args: never[]): Promise<unknown>;
}

/** What `createClient` of node-redis takes, with either version of the protocol. */
export type ClientOptions = redis.RedisClientOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;
/** What `createCluster` of node-redis takes. */
export type ClusterOptions = redis.RedisClusterOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;
/** What `createSentinel` of node-redis takes. */
export type SentinelOptions = redis.RedisSentinelOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;

/** Options of node-redis: what `createClient`, `createSentinel` or `createCluster` take. */
export type NodeRedisOptions = Known<ClientOptions> | Known<SentinelOptions> | Known<ClusterOptions>;

/**
 * How to reach a Redis: a URL; options or a client of ioredis or of node-redis; or a function that makes a client.
 * Options have to name the server: otherwise the client would connect to localhost.
 * The module closes clients that it made itself or that the function made; it never closes a client that it was given.
 */
export type RedisSource =
  | string
  | Known<RedisOptions>
  | NodeRedisOptions
  | IoredisClient
  | NodeRedisClient
  | (() => IoredisClient | NodeRedisClient | Promise<IoredisClient | NodeRedisClient>);
