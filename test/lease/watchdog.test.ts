import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Lock, LockEvent } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { proxyTo, redisServer } from '../support/stage.js';

const TTL_MS = 30_000;

afterEach(() => {
  vi.restoreAllMocks();
});

const endsAt = (lock: Lock) => performance.now() + lock.remainingMs;

/** After how many tenths of a second the lock was extended. */
async function extensionsOf(lock: Lock, forMs: number): Promise<number[]> {
  const from = performance.now();
  const times: number[] = [];
  for (let end = endsAt(lock); performance.now() < from + forMs; end = endsAt(lock)) {
    await sleep(10);
    if (endsAt(lock) > end + 50) times.push(Math.round((performance.now() - from) / 100));
  }
  return times;
}

describe('Watchdog', () => {
  it('extends in each process at a pace of its own, up to a tenth earlier, so that those that were extended together drift apart [G283]', async () => {
    const redis = (await redisServer()).url;
    const times: Promise<number[]>[] = [];
    for (const chance of [0, 0.5, 1]) {
      const random = vi.spyOn(Math, 'random').mockReturnValue(chance);
      const locks = await openLocks({ redis, ttlMs: TTL_MS });
      random.mockRestore();
      times.push(extensionsOf(await locks.acquire(`pace ${chance}`), TTL_MS + 300));
    }
    expect(await Promise.all(times)).toEqual([
      [100, 200, 300],
      [95, 190, 285],
      [90, 180, 270],
    ]);
  });

  it('tries at least three times before the deadline, tells each fault and then the loss, and keeps the lock if the last try succeeds', async () => {
    const proxy = await proxyTo(await redisServer());
    const locks = await openLocks({ redis: proxy.url, ttlMs: 9_000, commandTimeoutMs: 500 });
    const events: LockEvent[] = [];
    locks.events$.subscribe((event) => events.push(event));
    const [saved, lost] = [await locks.acquire('saved'), await locks.acquire('lost')];
    proxy.hold();
    await sleep(9_000 * 0.9);
    proxy.release();
    await sleep(9_000 * 0.5);
    expect(saved.isHeld).toBe(true);
    await saved.release();
    events.length = 0;
    const deadline = endsAt(lost);
    proxy.refuse();
    proxy.cut();
    await new Promise((resolve) => lost.signal.addEventListener('abort', resolve));
    expect(Math.abs(performance.now() - deadline)).toBeLessThan(10);
    expect(lost.signal.reason).toMatchObject({
      reason: 'unavailable',
      cause: { message: expect.stringContaining('127.0.0.1') },
    });
    await sleep(10);
    expect(events.slice(0, -1).filter(({ type }) => type !== 'extension-failed')).toEqual([]);
    expect(events.length).toBeGreaterThan(3);
    expect(events.at(-1)).toMatchObject({ type: 'lost', key: 'lost', reason: 'unavailable' });
  });

  it('extends a bounded number at once and the next after a pause, in the order in which they came due', async () => {
    const locks = await openLocks({ memory: true, ttlMs: TTL_MS });
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const held = await Promise.all(Array.from({ length: 10_000 }, (_, index) => locks.acquire(`lease ${index}`)));
    const isExtended = (lock: Lock) => lock.remainingMs > 0.8 * TTL_MS;
    await sleep(TTL_MS / 4);
    const counts = [0];
    while (counts.at(-1)! < held.length) {
      await sleep(1);
      const extended = held.filter(isExtended);
      expect(extended).toEqual(held.slice(0, extended.length));
      if (extended.length > counts.at(-1)!) counts.push(extended.length);
    }
    const atOnce = counts.map((count, index) => count - (counts[index - 1] ?? 0));
    expect(Math.max(...atOnce)).toBeLessThanOrEqual(300);
    expect(counts.length).toBeGreaterThan(10);
  });
});
