import { expect, it, onTestFinished, vi } from 'vitest';
import { ReleaseRetry } from '../../lib/core/backend/release-retry.js';

it('releases that are owed are not tried while there is no connection, and are tried at once when there is one again [G66]', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const tried: string[] = [];
  let isReady = false;
  const retry = new ReleaseRetry<string>(
    (key, done) => {
      tried.push(key);
      queueMicrotask(() => done(true));
    },
    () => isReady,
  );
  for (let key = 0; key < 2_000; key++) retry.add(`${key}`, Infinity);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(tried).toEqual([]);
  isReady = true;
  retry.hurry();
  await vi.advanceTimersByTimeAsync(0);
  expect(new Set(tried).size).toBe(2_000);
  expect(retry.size).toBe(0);
});
