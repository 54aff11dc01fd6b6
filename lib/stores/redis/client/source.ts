// The only types of ioredis in lib/. They are unknown in an application that has no ioredis because it needs none: the
// next line lets it compile our declarations all the same. Only a comment of this form is kept in them.
/** @ts-ignore: ioredis is optional. */
import type { Cluster, Redis, RedisOptions } from 'ioredis';

export type { Cluster, Redis, RedisOptions };

/** A client of ioredis. */
export type IoredisClient = Redis | Cluster;

/**
 * Where a Redis is: a URL, ioredis options, a client, or a function that makes a client.
 * Options have to name the server, and may hold nothing that ioredis does not know: it would connect to localhost.
 * The module closes what it made itself or had made by the function; a client it was handed it never closes.
 */
export type RedisSource = string | RedisOptions | Redis | Cluster | (() => IoredisClient | Promise<IoredisClient>);
