import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ReleaseRetry } from '../../lib/core/backend/release-retry.js';

/** The attempts and their times; each attempt is answered at once. */
function retrying(isConfirmed: (key: string) => boolean = () => false) {
  const tried: [key: string, atMs: number][] = [];
  const connection = { isReady: true };
  const startedAt = performance.now();
  const retry = new ReleaseRetry<string>(
    (key, done) => {
      tried.push([key, Math.round(performance.now() - startedAt)]);
      queueMicrotask(() => done(isConfirmed(key)));
    },
    () => connection.isReady,
  );
  return {
    retry,
    tried,
    connection,
    times: () => tried.map(([, atMs]) => atMs),
    keys: () => tried.map(([key]) => key),
  };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

describe('What could not be given back', () => {
  it('releases that are owed are not tried while there is no connection, and are tried at once when there is one again [G66]', async () => {
    const { retry, tried, connection } = retrying(() => true);
    connection.isReady = false;
    for (let key = 0; key < 2_000; key++) retry.add(`${key}`, Infinity);
    await pass(60_000);
    expect(tried).toEqual([]);
    connection.isReady = true;
    retry.hurry();
    await pass(0);
    expect(new Set(tried.map(([key]) => key)).size).toBe(2_000);
    expect(retry.size).toBe(0);
  });
});
