import { redisServer } from './stage.js';
import type { RedisServer } from './redis-server.js';
import { until } from './until.js';

/** A replica that follows its master, which it may know by another address. */
export async function replicaOf(
  master: RedisServer,
  at: { port: number } = master,
  ...args: string[]
): Promise<RedisServer> {
  const replica = await redisServer('--replicaof', '127.0.0.1', String(at.port), ...args);
  await until(async () => String(await replica.command('INFO', 'replication')).includes('master_link_status:up'), {
    what: 'the replica follows',
  });
  return replica;
}
