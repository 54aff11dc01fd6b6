import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ReleaseRetry } from '../../lib/core/backend/release-retry.js';

/** What is tried, and when; each try is answered at once. */
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
  it('is tried again after pauses that grow to some seconds', async () => {
    const { retry, times } = retrying();
    retry.add('a', Infinity);
    await pass(12_000);
    expect(times()).toEqual([100, 300, 700, 1_500, 3_100, 6_300, 9_500]);
  });

  it('is tried until it is confirmed, and the next one is tried soon again', async () => {
    let answers = false;
    const { retry, times } = retrying(() => answers);
    retry.add('a', Infinity);
    await pass(1_000);
    answers = true;
    await pass(20_000);
    expect(times()).toEqual([100, 300, 700, 1_500]);
    expect(retry.size).toBe(0);
    retry.add('b', Infinity);
    await pass(100);
    expect(times().at(-1)).toBe(21_100);
  });

  it('releases that are owed are not tried while there is no connection, and at once when there is one again [G66]', async () => {
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

  it('is tried for a part only when none of that is confirmed', async () => {
    const { retry, tried } = retrying();
    for (let key = 0; key < 20_000; key++) retry.add(`${key}`, Infinity);
    await pass(100);
    expect(tried.length).toBeGreaterThan(0);
    expect(tried.length).toBeLessThan(1_000);
  });

  it('does not keep what comes behind it from being tried', async () => {
    const { retry, keys } = retrying((key) => key.startsWith('good'));
    for (let key = 0; key < 600; key++) retry.add(`bad ${key}`, Infinity);
    retry.add('good', Infinity);
    await pass(10_000);
    expect(keys()).toContain('good');
    expect(retry.size).toBe(600);
  });

  it('is forgotten when it has ended by itself, and nothing is done any more', async () => {
    const { retry, times } = retrying();
    retry.add('a', 1_000);
    await pass(700);
    expect(retry.size).toBe(1);
    await pass(60_000);
    expect(times()).toEqual([100, 300, 700]);
    expect(retry.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is tried once more at the end, and nothing after that', async () => {
    const { retry, keys } = retrying();
    retry.add('a', Infinity);
    retry.add('b', Infinity);
    await retry.close();
    expect(keys()).toEqual(['a', 'b']);
    retry.add('c', Infinity);
    retry.hurry();
    await pass(60_000);
    expect(keys()).toEqual(['a', 'b']);
  });

  it('is not tried at the end without a connection', async () => {
    const { retry, tried, connection } = retrying();
    connection.isReady = false;
    retry.add('a', Infinity);
    await retry.close();
    expect(tried).toEqual([]);
  });
});
