import { describe, expect, it } from 'vitest';
import { until } from '../support/until.js';
import { locksAt, locksOf, sentinelGroup } from './sentinel-stage.js';

describe('A primary that was replaced while it hung, and does not know it', () => {
  it('a primary that was replaced while it hung still grants and extends locks, but none with waitForReplicas, since no replica follows it any more [G78]', async () => {
    const group = await sentinelGroup();
    const [plain, safe] = [
      await locksOf(group),
      await locksOf(group, { waitForReplicas: { count: 1, timeoutMs: 1_000 } }),
    ];
    await plain.withLock('key', () => {}); // connected
    const lock = await until(() => safe.tryAcquire('held before').catch(() => null), {
      what: 'it is acknowledged in time',
    });

    group.primary.pause();
    const promoted = await group.failedOver();
    await group.killSentinels(); // or they would make it a replica in a moment
    group.primary.resume();

    const others = await locksAt(promoted);
    const first = await others.acquire('key', { waitMs: 0 });
    const second = await plain.acquire('key', { waitMs: 0 });
    expect([first.isHeld, second.isHeld]).toEqual([true, true]);
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken); // the later grant, whichever server gave it

    const refused = { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('0 of 1 replicas had it') };
    await Promise.all([
      expect(safe.acquire('key 2', { waitMs: 0 })).rejects.toMatchObject(refused),
      expect(lock.extend()).rejects.toMatchObject(refused),
    ]);
    expect(await others.tryAcquire('held before')).toBeNull();
  });
});
