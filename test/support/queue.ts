import type { LockService } from '../../lib/index.js';
import type { RedisServer } from './redis-server.js';
import { until } from './until.js';

/** The number of waiters of a lock, as the server knows it: one for each process, in fair mode one for each call. */
export async function queued(server: RedisServer, key: string): Promise<number> {
  return Number(await server.command('ZCOUNT', `lock:{${key}}:queue`, '0', '+inf')); // the signs of processes have lower scores
}

export async function untilQueued(server: RedisServer, key: string, count: number): Promise<void> {
  await until(async () => (await queued(server, key)) === count, { what: `${count} wait for the lock "${key}"` });
}

/** The number of connections of the server that listen for their turn. */
export async function subscribers(server: RedisServer): Promise<number> {
  const list = (await server.command('CLIENT', 'LIST', 'TYPE', 'pubsub')) as string;
  return list.split('\n').filter((line) => line !== '').length;
}

export async function untilSubscribers(server: RedisServer, count: number): Promise<void> {
  await until(async () => (await subscribers(server)) === count, { what: `${count} connections listen` });
}

/** Lets services wait for a lock: from then on they listen for their turns. */
export async function haveWaited(server: RedisServer, ...services: LockService[]): Promise<void> {
  const count = await subscribers(server);
  await server.command('SET', 'lock:{warm-up}', 'a person');
  const waiting = services.map((locks) => locks.withLock('warm-up', { waitMs: 60_000 }, () => {}));
  await untilSubscribers(server, count + services.length);
  await server.command('DEL', 'lock:{warm-up}');
  await Promise.all(waiting);
}
