import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockSettings } from '../../lib/compose/redis-lock-options.js';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';

/** What a machine that does other things, too, may be late by. */
const SLACK_MS = 400;

/** Redis reads its clock once for all commands that it finds together: it may be late by what these take. */
const REDIS_CLOCK_MS = 20;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

const open = (settings: RedisLockSettings = {}) => openLocks({ redis: server.url, ...settings });

/** The lock is had when its key ends in Redis: not before, and at once. */
async function hadAtItsEnd(key: string, waiting: Promise<unknown>): Promise<void> {
  const askedAt = performance.now();
  const remainingMs = (await server.command('PTTL', `lock:{${key}}`)) as number;
  const answeredAt = performance.now();
  const stalls = monitorEventLoopDelay({ resolution: 5 });
  stalls.enable();
  await waiting;
  const hadAt = performance.now();
  stalls.disable();
  const stalledMs = stalls.max / 1e6; // this process did not run
  expect(remainingMs).toBeGreaterThan(0);
  expect(hadAt).toBeGreaterThan(askedAt + remainingMs - REDIS_CLOCK_MS);
  expect(hadAt).toBeLessThan(answeredAt + remainingMs + SLACK_MS + stalledMs);
}

/** A process holds the lock, others wait for it, and the process is killed. */
async function crashed(key: string, fair: boolean): Promise<void> {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 1_200 });
  const services = await Promise.all([open({ fair }), open({ fair }), open({ fair })]);
  await holder.acquire(key);
  const calls = services.map((locks) => locks.acquire(key, { waitMs: 20_000 }));
  await untilQueued(server, key, 3);
  await holder.kill();
  await hadAtItsEnd(key, Promise.race(calls));
  for (let left = [...calls]; left.length > 0;) {
    const [index, lock] = await Promise.race(left.map(async (call, at) => [at, await call] as const));
    await lock.release();
    left = left.filter((_, at) => at !== index);
  }
}

describe('a lock whose holder crashed is had right at the end of its ttl', () => {
  it.each([false, true])('by one of those who wait, and then by the others (fair: %s)', async (fair) => {
    await crashed(`crashed ${fair}`, fair);
  });

  it('a lock whose holder crashed is had at the end of its ttl also among 300 000 other keys that end some time [G124]', async () => {
    const fill = `for index = ARGV[1], ARGV[2] do
      redis.call('SET', 'other:' .. index, '', 'PX', 20000 + index % 40000)
    end`;
    for (let start = 0; start < 300_000; start += 30_000) {
      await server.command('EVAL', fill, 0, start, start + 29_999);
    }
    expect(await server.command('DBSIZE')).toBeGreaterThan(250_000);
    await crashed('among others', false);
    await server.command('FLUSHALL');
  });

  it('of a lease that nobody extends and nobody releases', async () => {
    const [locks, others] = [await open(), await open()];
    const lost = await others.acquire('not-kept', { ttlMs: 900, watchdog: false });
    const waiting = locks.acquire('not-kept');
    await untilQueued(server, 'not-kept', 1);
    await hadAtItsEnd('not-kept', waiting);
    expect(lost.isHeld).toBe(false);
  });
});

describe('who waits', () => {
  it('is not woken by the extensions of the holder: it looks once a second', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('extended', { ttlMs: 1_200 });
    const waiting = locks.acquire('extended', { waitMs: 1_500 }).catch((error: unknown) => error);
    await untilQueued(server, 'extended', 1);
    await server.resetCalls();
    expect(await waiting).toMatchObject({ code: 'LOCK_CONTENDED' });
    // Of the holder an extension each 400 ms, of the waiter a look whenever the lease could have ended, and its farewell.
    expect(await scriptCalls(server)).toBeLessThan(8);
    expect(holder.isHeld).toBe(true);
    await holder.release();
  });

  it('for many keys is woken for the one that is released', async () => {
    const [locks, others] = [await open(), await open()];
    const keys = Array.from({ length: 50 }, (_, index) => `one-of-many ${index}`);
    const held = await Promise.all(keys.map((key) => others.acquire(key)));
    const order: string[] = [];
    const calls = keys.map((key) => locks.withLock(key, () => void order.push(key)));
    for (const key of keys) await untilQueued(server, key, 1);
    const shuffled = held.map((_, index) => held[(index * 17) % 50]!);
    for (const [index, lock] of shuffled.entries()) {
      await lock.release();
      await calls[keys.indexOf(lock.key)];
      expect(order).toHaveLength(index + 1);
    }
    expect(order).toEqual(shuffled.map(({ key }) => key));
  });
});
