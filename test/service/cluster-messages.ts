import type { RedisOptions } from 'ioredis';
import { openLocks } from '../support/open-locks.js';
import type { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { clientOfCluster } from '../support/stage.js';
import { until } from '../support/until.js';

export const REQUEST = { waitMs: 60_000 };

export const open = (cluster: RedisCluster, redisOptions: RedisOptions = {}) =>
  openLocks({ redis: () => clientOfCluster(cluster, { redisOptions }) });

export async function sum(
  servers: readonly RedisServer[],
  count: (server: RedisServer) => Promise<number>,
): Promise<number> {
  return (await Promise.all(servers.map(count))).reduce((a, b) => a + b, 0);
}

/** The letters of the signs in the queue of a lock: for processes that listen to it, and for others. */
export async function signs(server: RedisServer, key: string, keyPrefix = ''): Promise<string> {
  const all = (await server.command('ZRANGE', `${keyPrefix}lock:{${key}}:queue`, '-inf', '(0', 'BYSCORE')) as string[];
  const latest = new Map(all.reverse().map((sign) => [sign.slice(2), sign.charAt(0)])); // the later ones come first
  return [...latest.values()].sort().join('');
}

export const untilSigns = (server: RedisServer, key: string, expected: string, keyPrefix?: string) =>
  until(async () => (await signs(server, key, keyPrefix)) === expected, { what: `the signs are ${expected}` });

export async function shardChannels(server: RedisServer): Promise<number> {
  return ((await server.command('PUBSUB', 'SHARDCHANNELS', '*inbox:*')) as string[]).length;
}

export async function plainChannels(server: RedisServer): Promise<number> {
  return ((await server.command('PUBSUB', 'CHANNELS', '*inbox:*')) as string[]).length;
}
