// The only types of Redis packages in lib/. In an application without one of the packages its types are unknown, and these lines let the
// declarations compile anyway. Declarations keep only comments of this form.
/** @ts-ignore: ioredis is optional. */
import type { Cluster, Redis, RedisOptions } from 'ioredis';
/** @ts-ignore: node-redis is optional. */
import type * as redis from 'redis';

export type { Cluster, Redis, RedisOptions };

/** The type, or never if it is unknown: an unknown type would disable the checks of a whole union. */
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

/** The options of `createClient` of node-redis, with either version of the protocol. */
export type ClientOptions = redis.RedisClientOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;
/** The options of `createCluster` of node-redis. */
export type ClusterOptions = redis.RedisClusterOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;
/** The options of `createSentinel` of node-redis. */
export type SentinelOptions = redis.RedisSentinelOptions<
  redis.RedisModules,
  redis.RedisFunctions,
  redis.RedisScripts,
  redis.RespVersions
>;

/** Options of node-redis for `createClient`, `createSentinel` or `createCluster`. */
export type NodeRedisOptions = Known<ClientOptions> | Known<SentinelOptions> | Known<ClusterOptions>;

/**
 * How to reach a Redis: a URL; options or a client of ioredis or of node-redis; or a function that makes a client.
 * Options must name the server: otherwise the client would connect to localhost.
 * The module closes clients that it made itself or that the function made; it never closes a client that it was given.
 */
export type RedisSource =
  | string
  | Known<RedisOptions>
  | NodeRedisOptions
  | IoredisClient
  | NodeRedisClient
  | (() => IoredisClient | NodeRedisClient | Promise<IoredisClient | NodeRedisClient>);
