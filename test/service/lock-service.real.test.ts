import { hostname } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Lock, LockContendedError } from 'nest-redis-lock';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });

it('acquire rejects when another process held the lock for all of waitMs, and says who, and for how long', async () => {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 60_000 });
  const { owner } = await holder.acquire('contended');
  const locks = await open();
  const error = await locks.acquire('contended', { waitMs: 500 }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockContendedError);
  expect(error).toMatchObject({
    code: 'LOCK_CONTENDED',
    status: 409,
    key: 'contended',
    holder: { owner, host: hostname(), pid: holder.pid },
  });
  const { waitedMs, remainingMs } = error as LockContendedError;
  expect(waitedMs).toBeGreaterThanOrEqual(499);
  expect(remainingMs).toBeGreaterThan(10_000);
  expect(remainingMs).toBeLessThanOrEqual(60_000);
});

it('inspect and isLocked tell who holds a lock: host, pid, since when, remaining ttl, fencing token, and how many wait here', async () => {
  const holder = await LockProcess.start({ redis: server.url });
  const from = Date.now();
  const { owner, fencingToken } = await holder.acquire('inspected', { ttlMs: 20_000 });
  const to = Date.now();
  const locks = await open();
  const waiting = [1, 2, 3].map(() => locks.acquire('inspected', { waitMs: 60_000 }).catch((error: Error) => error));
  await until(async () => (await locks.inspect('inspected'))?.waiters === 3, { what: 'all wait' });
  const askedAt = Date.now();
  const info = await locks.inspect('inspected');
  const answeredAfterMs = Date.now() - askedAt; // by so much it may be late
  expect(info).toMatchObject({
    key: 'inspected',
    holder: { owner, host: hostname(), pid: holder.pid },
    fencingToken,
  });
  expect(info!.remainingMs).toBeGreaterThan(0);
  expect(info!.remainingMs).toBeLessThanOrEqual(20_000);
  expect(info!.since!.getTime()).toBeGreaterThanOrEqual(from - 100);
  expect(info!.since!.getTime()).toBeLessThanOrEqual(to + answeredAfterMs + 100);
  expect(await locks.isLocked('inspected')).toBe(true);
  await holder.release('inspected');
  const first = (await Promise.race(waiting)) as Lock;
  expect(first.isHeld).toBe(true);
});
