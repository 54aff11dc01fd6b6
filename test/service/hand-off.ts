import { Redis, type RedisOptions } from 'ioredis';
import { onTestFinished } from 'vitest';
import type { LockService } from '../../lib/index.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';

export async function sum(
  servers: readonly RedisServer[],
  count: (server: RedisServer) => Promise<number>,
): Promise<number> {
  return (await Promise.all(servers.map(count))).reduce((a, b) => a + b, 0);
}

/** How many channels the processes listen to that wait for locks. */
export async function channels(server: RedisServer): Promise<number> {
  return ((await server.command('PUBSUB', 'CHANNELS', '*inbox:*')) as string[]).length;
}

/** The other service has waited for some lock before, so it hears of its turns. */
export async function listens(
  on: readonly RedisServer[],
  locks: LockService,
  others: LockService,
  key: string,
): Promise<void> {
  const before = await sum(on, channels);
  const holder = await locks.acquire(`before ${key}`);
  const waiting = others.acquire(`before ${key}`);
  await until(async () => (await sum(on, channels)) > before, { what: 'it listens' });
  await holder.release();
  await (await waiting).release();
}

/** A lock is handed over between two clients with these options, by one release and one confirmation. */
export async function isHandedTo(server: RedisServer, key: string, options: RedisOptions): Promise<void> {
  const connect = (to: RedisOptions) => {
    const client = new Redis({ port: server.port, host: '127.0.0.1', ...to });
    onTestFinished(() => client.disconnect());
    return client;
  };
  const make = () => openLocks({ redis: connect(options) });
  const [locks, others] = [await make(), await make()];
  await listens([server], locks, others, key);
  const holder = await locks.acquire(key);
  const waiting = others.acquire(key);
  const queue = `${options.keyPrefix ?? ''}lock:{${key}}:queue`;
  const entries = connect({ db: options.db });
  await until(async () => (await entries.zcount(queue, 0, '+inf')) === 1, { what: 'it waits' });
  await server.resetCalls();
  await holder.release();
  await waiting;
  await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
}
