import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** Redis reads its clock once for all commands that it finds together: it may be late by what these take. */
const REDIS_CLOCK_MS = 20;
/** Less than the period of the checks. */
const AT_ONCE_MS = 400;

/**
 * The lock is had when its key ends in Redis: not before, and at once. That is measured by a client that looks all the time: what
 * delays it on a busy machine delays the waiter, too.
 */
async function hadAtItsEnd(key: string, waiting: Promise<unknown>): Promise<void> {
  const holder = await ownerOn(server, key);
  const askedAt = performance.now();
  const remainingMs = (await server.command('PTTL', `lock:{${key}}`)) as number;
  const had = waiting.then(() => performance.now());
  const isOver = async () => (await ownerOn(server, key)) !== holder;
  await until(isOver, { what: `the lock "${key}" ends`, timeoutMs: 60_000 });
  const overAt = performance.now();
  const hadAt = await had;
  expect(remainingMs).toBeGreaterThan(0);
  expect(hadAt).toBeGreaterThan(askedAt + remainingMs - REDIS_CLOCK_MS);
  expect(hadAt).toBeLessThan(overAt + AT_ONCE_MS);
}

/** A process holds the lock, others wait for it, and the process is killed. */
async function crashed(key: string): Promise<void> {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 3_000 });
  const services = await Promise.all([1, 2, 3].map(() => openLocks({ redis: server.url })));
  await holder.acquire(key);
  const calls = services.map((locks) => locks.acquire(key, { waitMs: 20_000 }));
  await untilQueued(server, key, 3);
  await holder.kill();
  await hadAtItsEnd(key, Promise.race(calls));
  await Promise.all(calls.map(async (call) => (await call).release()));
}

it('a lock whose holder crashed is had at the end of its ttl also among 300 000 other keys that end some time [G124]', async () => {
  const fill = `for index = ARGV[1], ARGV[2] do
    redis.call('SET', 'other:' .. index, '', 'PX', 20000 + index % 40000)
  end`;
  for (let start = 0; start < 300_000; start += 30_000) {
    await server.command('EVAL', fill, 0, start, start + 29_999);
  }
  expect(await server.command('DBSIZE')).toBeGreaterThan(250_000);
  await crashed('among others');
  await server.command('FLUSHALL');
});
