import { describe, expect, it } from 'vitest';
import { until } from '../support/until.js';
import { locksAt, locksOf, sentinelGroup } from './sentinel-stage.js';

/** Longer than a failover takes on a busy machine. */
const LEASE = { ttlMs: 20_000, watchdog: false };
const MARGIN_MS = 17_500;
/** So much the clock of the replica is ahead: Redis tells replicas when a key ends, not for how long it lives. */
const AHEAD_MS = 16_500;

describe('marginMs', () => {
  it('marginMs ends a lease before a promoted replica does whose clock is ahead by less, and without it there are two holders [G79]', async () => {
    const group = await sentinelGroup();
    const waitForReplicas = { count: 2, timeoutMs: 6_000 };
    const [guarded, unguarded] = [
      await locksOf(group, { ...LEASE, waitForReplicas, marginMs: MARGIN_MS }),
      await locksOf(group, { ...LEASE, waitForReplicas }),
    ];
    const unguardedLock = await unguarded.acquire('unguarded');
    const guardedLock = await until(() => guarded.tryAcquire('guarded').catch(() => null), {
      what: 'the lock is granted in what the margin leaves of its lease',
    });

    await group.primary.kill();
    const promoted = await group.failedOver();
    for (const { key } of [guardedLock, unguardedLock]) {
      const leftMs = Number(await promoted.command('PTTL', `lock:{${key}}`));
      await promoted.command('PEXPIRE', `lock:{${key}}`, Math.max(0, leftMs - AHEAD_MS));
    }

    const others = await locksAt(promoted);
    const whenFree = (key: string) => until(() => others.tryAcquire(key), { what: `"${key}" is free` });
    const held = await Promise.all([
      whenFree('guarded').then(() => guardedLock.isHeld),
      whenFree('unguarded').then(() => unguardedLock.isHeld),
    ]);
    expect(held).toEqual([false, true]);
  });
});
