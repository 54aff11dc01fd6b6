// The only types of ioredis in lib/. They are unknown in an application that has no ioredis because it needs none: the
// next line lets it compile our declarations all the same. Only a comment of this form is kept in them.
/** @ts-ignore: ioredis is optional. */
import type { Cluster, Redis, RedisOptions } from 'ioredis';

export type { Cluster, Redis, RedisOptions };

/** A client of ioredis. */
export type IoredisClient = Redis | Cluster;

/**
 * How to reach a Redis: a URL, ioredis options, a client, or a function that makes a client.
 * Options have to name the server, and only options that ioredis knows: otherwise it would connect to localhost.
 * The module closes clients that it made itself or that the function made; it never closes a client that it was given.
 */
export type RedisSource = string | RedisOptions | Redis | Cluster | (() => IoredisClient | Promise<IoredisClient>);
