import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { openLocks } from '../support/open-locks.js';

const NOON = Date.parse('2026-01-01T12:00:00.000Z');
beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'], now: NOON }));
afterEach(() => void vi.useRealTimers());

it('the fencing token of a lock in memory is the time of its grant in microseconds, and also grows when the clock is set back', async () => {
  const locks = await openLocks({ memory: true });
  const token = (key: string) => locks.withLock(key, ({ fencingToken }) => fencingToken);
  expect([await token('a'), await token('b'), await token('a')]).toEqual([0, 1, 2].map((more) => NOON * 1_000 + more));
  vi.setSystemTime(NOON + 250);
  expect(await token('a')).toBe((NOON + 250) * 1_000);
  vi.setSystemTime(NOON - 3_600_000);
  expect(await token('a')).toBe((NOON + 250) * 1_000 + 1);
  vi.setSystemTime(NOON + 251);
  const restarted = await openLocks({ memory: true });
  expect(await restarted.withLock('a', ({ fencingToken }) => fencingToken)).toBe((NOON + 251) * 1_000);
});
