import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LockContendedError } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';

/** Everything that Vitest can fake if each test file has its own process. */
const ALL = [
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
  'queueMicrotask',
  'performance',
  'hrtime',
  'Date',
] as const;

beforeEach(() => {
  vi.useFakeTimers({ toFake: [...ALL] });
});
afterEach(() => {
  vi.useRealTimers();
});

it('locks in memory under fake timers are acquired, extended, contended and released without an advance of the time [G223]', async () => {
  const locks = await openLocks({ memory: true });
  const lock = await locks.acquire('k');
  await lock.extend();
  expect(await locks.tryAcquire('k')).toBeNull();
  await expect(locks.acquire('k', { waitMs: 0 })).rejects.toBeInstanceOf(LockContendedError);
  const waits = locks.withLock('k', ({ isHeld }) => isHeld);
  expect(await lock.release()).toBe(true);
  expect(await waits).toBe(true);
});

it('locks in memory under fake timers are kept when the date is set ahead, or the time is advanced beyond the ttl [G224]', async () => {
  const locks = await openLocks({ memory: true, ttlMs: 1_000 });
  const lock = await locks.acquire('k');
  vi.setSystemTime(Date.now() + 3_600_000);
  vi.advanceTimersByTime(60_000);
  expect([lock.isHeld, lock.signal.aborted]).toEqual([true, false]);
  expect(await lock.release()).toBe(true);
});
