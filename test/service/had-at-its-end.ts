import { expect } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

/** Redis reads its clock once for all commands that it finds together: it may be late by what these take. */
const REDIS_CLOCK_MS = 20;
/** Less than the period of the checks. */
const AT_ONCE_MS = 400;

/**
 * The lock is had when its key ends in Redis: not before, and at once. That is measured by a client that looks all the time: what
 * delays it on a busy machine delays the waiter, too.
 */
export async function hadAtItsEnd(server: RedisServer, key: string, waiting: Promise<unknown>): Promise<void> {
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
