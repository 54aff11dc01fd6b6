import type { RedisServer } from './redis-server.js';
import { until } from './until.js';

/** How many wait for a lock, as the server knows: one for each process, in fair mode one for each call. */
export async function queued(server: RedisServer, key: string): Promise<number> {
  return Number(await server.command('ZCOUNT', `lock:{${key}}:queue`, '0', '+inf')); // below are the signs of processes
}

export async function untilQueued(server: RedisServer, key: string, count: number): Promise<void> {
  await until(async () => (await queued(server, key)) === count, { what: `${count} wait for the lock "${key}"` });
}

/** How many connections of the server listen for their turn. */
export async function subscribers(server: RedisServer): Promise<number> {
  const list = (await server.command('CLIENT', 'LIST', 'TYPE', 'pubsub')) as string;
  return list.split('\n').filter((line) => line !== '').length;
}

export async function untilSubscribers(server: RedisServer, count: number): Promise<void> {
  await until(async () => (await subscribers(server)) === count, { what: `${count} connections listen` });
}
