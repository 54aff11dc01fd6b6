import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockInfo, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const server = await serverOfFile();

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
];

/** As the owner value of a lock of this process shows it. */
const holderOf = ({ owner }: { owner: string }) => ({ owner, host: hostname(), pid: process.pid });
const A_DIGEST = expect.stringMatching(/^[0-9a-f]{16}$/) as string;

const listed = async (locks: { list(): Promise<{ locks: LockInfo[] }> }, key: string) =>
  (await locks.list()).locks.find((lock) => lock.key === key);

it.each(STORES)(
  'inspect and list show all holders of permits, and how many of how many (%s) [G890]',
  async (store, options) => {
    const locks = await openLocks(options());
    const first = await locks.acquirePermits('mail', { limit: 5, permits: 2, ttlMs: 60_000 });
    const second = await locks.acquirePermits('mail', { limit: 4, permits: 1 });
    const seen = (await locks.inspect('mail'))!;
    const [a, b] = seen.holders;
    expect(seen).toMatchObject({ mode: 'permits', permits: { held: 3, limit: 4 }, waiters: 0 });
    expect(seen.fencingToken).toBeUndefined();
    expect(seen.holders).toHaveLength(2);
    expect(a).toMatchObject({ holder: holderOf(first), digest: A_DIGEST, permits: 2 });
    expect(b).toMatchObject({ holder: holderOf(second), digest: A_DIGEST, permits: 1 });
    expect(a!.remainingMs).toBeGreaterThan(b!.remainingMs);
    expect([typeof a!.since, typeof b!.since]).toEqual(
      store === 'memory' ? ['object', 'object'] : ['undefined', 'undefined'],
    );
    const { holder, digest, since, remainingMs } = seen;
    expect({ holder, digest, since, remainingMs, permits: 2 }).toEqual(a);
    const other = (await listed(locks, 'mail'))!;
    expect(other.holders.map((each) => each.digest)).toEqual([a!.digest, b!.digest]);
    expect(other).toMatchObject({ mode: 'permits', permits: { held: 3, limit: 4 } });

    await first.release();
    expect(await locks.inspect('mail')).toMatchObject({ permits: { held: 1, limit: 4 }, holders: [{ permits: 1 }] });
    await second.release();
    expect(await locks.inspect('mail')).toBeNull();
  },
);

it.each(STORES)(
  'permits are taken by force only from the named holder, and from all holders without a name (%s) [G891]',
  async (_, options) => {
    const locks = await openLocks(options());
    const take = (permits: number) => locks.acquirePermits('forced', { limit: 3, permits });
    const [a, b, c] = [await take(1), await take(1), await take(1)];
    const reasons: unknown[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && reasons.push([event.owner, event.reason]));
    const waiting = take(2);
    await until(async () => (await locks.inspect('forced'))?.waiters, { what: 'a call waits' });
    const { digest } = (await locks.inspect('forced'))!.holders.find(({ holder }) => holder.owner === b.owner)!;
    expect(await locks.forceRelease('forced', { owner: digest })).toBe(true);
    expect([a.isHeld, b.isHeld, c.isHeld]).toEqual([true, false, true]);
    expect(() => b.assertHeld()).toThrow('is no longer held (forced): it was taken by force, with forceRelease. ');
    expect(await locks.forceRelease('forced', { owner: digest })).toBe(false);
    await a.release(); // two are free
    const d = await waiting;

    expect(await locks.forceRelease('forced')).toBe(true);
    expect([c.isHeld, d.isHeld]).toEqual([false, false]);
    expect(await locks.inspect('forced')).toBeNull();
    expect(await locks.forceRelease('forced')).toBe(false);
    await until(() => reasons.length === 3, { what: 'the losses' });
    expect(reasons).toEqual([b, c, d].map(({ owner }) => [owner, 'forced']));
  },
);

it.each(STORES)(
  'the error of a call that is refused permits names one holder, the number of others, and what the call asked for (%s) [G893]',
  async (_, options) => {
    const locks = await openLocks(options());
    await locks.acquirePermits('full', { limit: 4, ttlMs: 300, watchdog: false });
    const held = [];
    for (let count = 0; count < 3; count++) held.push(await locks.acquirePermits('full', { limit: 4 }));
    await sleep(500); // the time of the first is over, and its data are still in the value
    const refusal = locks.acquirePermits('full', { limit: 4, permits: 2, waitMs: 0 });
    await expect(refusal).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
      holder: holderOf(held[0]!),
      others: 2,
      permits: 2,
      message: expect.stringMatching(
        /^2 permits of "full" are not free: the lock is held by pid \d+ on \S+ and 2 others \(one of their leases runs for another \d+ ms\); gave up after .* use tryAcquirePermits, or onContended of @Limited\.$/,
      ),
    });
    const exclusive = await locks.acquire('full', { waitMs: 0 }).catch((error: unknown) => error);
    expect(exclusive).toMatchObject({
      others: 2,
      message: expect.stringMatching(/^Lock "full" is held by pid \d+ on \S+ and 2 others \(one /) as string,
    });
    expect(exclusive).not.toHaveProperty('permits', expect.anything());
    await Promise.all(held.slice(1).map((permit) => permit.release()));
    const alone = await locks.acquire('full', { waitMs: 0 }).catch((error: unknown) => error as Error);
    expect(alone).toMatchObject({ message: expect.stringMatching(/held by pid \d+ on \S+ \(its lease/) as string });
    expect(alone).not.toHaveProperty('others', expect.anything());
  },
);
