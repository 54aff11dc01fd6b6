import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LockInfo, RedisLockModuleOptions } from 'nest-redis-lock';
import type { AcquireOutcome } from 'nest-redis-lock/testing';
import { digestOf, parseOwner } from '../../lib/api/holder.js';
import { openService } from '../../lib/compose/composition.js';
import { resolveServiceOptions } from '../../lib/core/options/service-options.js';
import { monotonic } from '../../lib/core/time/clock.js';
import { MemoryBackend } from '../../lib/stores/memory/memory.backend.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
];

const listed = async (locks: { list(): Promise<{ locks: LockInfo[] }> }, key: string) =>
  (await locks.list()).locks.find((lock) => lock.key === key);

it.each(STORES)(
  'inspect and list show all who hold permits, and how many of how many (%s) [G890]',
  async (store, options) => {
    const locks = await openLocks(options());
    const first = await locks.acquirePermits('mail', { limit: 5, permits: 2, ttlMs: 60_000 });
    const second = await locks.acquirePermits('mail', { limit: 4, permits: 1 });
    const seen = (await locks.inspect('mail'))!;
    const [a, b] = seen.holders;
    expect(seen).toMatchObject({ mode: 'permits', permits: { held: 3, limit: 4 }, waiters: 0 });
    expect(seen.fencingToken).toBeUndefined();
    expect(seen.holders).toHaveLength(2);
    expect(a).toMatchObject({ holder: parseOwner(first.owner), digest: digestOf(first.owner), permits: 2 });
    expect(b).toMatchObject({ holder: parseOwner(second.owner), digest: digestOf(second.owner), permits: 1 });
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

it('inspect and list show all who share a lock, with the token that all of them have', async () => {
  const backend = new MemoryBackend(monotonic);
  const { service: locks } = await openService(backend, {
    options: resolveServiceOptions({}),
    registration: 'default',
    now: monotonic,
    processName: 'host/1/a',
  });
  const owners = ['web-1/7/abc/1', 'web-2/8/abc/1'];
  const request = { key: 'report', hold: { mode: 'shared' }, ttlMs: 60_000 } as const;
  const tokens: unknown[] = [];
  for (const owner of owners) {
    const outcome = await new Promise<AcquireOutcome>((done) => backend.acquire({ ...request, owner }, done));
    if (outcome.status === 'acquired') tokens.push(outcome.grant.fencingToken);
  }
  const seen = (await locks.inspect('report'))!;
  expect(seen).toMatchObject({ mode: 'shared', holder: { host: 'web-1', pid: 7 }, digest: digestOf(owners[0]!) });
  expect(seen.holders.map(({ holder }) => holder)).toEqual(owners.map(parseOwner));
  expect(seen).not.toHaveProperty('permits', expect.anything());
  expect(tokens).toEqual([seen.fencingToken, seen.fencingToken]);
  expect(await listed(locks, 'report')).toMatchObject({ mode: 'shared', holders: [{ permits: undefined }, {}] });
  await locks.close();
});

it('an exclusive lock has one holder, which the fields of the lock describe as ever', async () => {
  const locks = await openLocks({ memory: true });
  const lock = await locks.acquire('order');
  const seen = (await locks.inspect('order'))!;
  const { holder, digest, since, remainingMs, fencingToken } = seen;
  expect(seen).toMatchObject({ mode: 'exclusive', permits: undefined });
  expect(seen.holders).toEqual([{ holder, digest, since, remainingMs, permits: undefined, waiters: 0 }]);
  expect({ digest, fencingToken }).toEqual({ digest: digestOf(lock.owner), fencingToken: lock.fencingToken });
});

it.each(STORES)(
  'permits are taken by force from the holder that was named alone, and without a name from all (%s) [G891]',
  async (_, options) => {
    const locks = await openLocks(options());
    const take = (permits: number) => locks.acquirePermits('forced', { limit: 3, permits });
    const [a, b, c] = [await take(1), await take(1), await take(1)];
    const reasons: unknown[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && reasons.push([event.owner, event.reason]));
    const waiting = take(2);
    await until(async () => (await locks.inspect('forced'))?.waiters, { what: 'a call waits' });
    expect(await locks.forceRelease('forced', { owner: digestOf(b.owner) })).toBe(true);
    expect([a.isHeld, b.isHeld, c.isHeld]).toEqual([true, false, true]);
    expect(() => b.assertHeld()).toThrow('is no longer held (forced): it was taken by force, with forceRelease. ');
    expect(await locks.forceRelease('forced', { owner: digestOf(b.owner) })).toBe(false);
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
  'a shared lock is taken by force from one of those who share it, or from all (%s)',
  async (_, options) => {
    const locks = await openLocks(options());
    // With a time limit each call has a lease of its own.
    const share = () => locks.acquire('shared', { mode: 'shared', maxHoldMs: 60_000 });
    const [a, b, c] = [await share(), await share(), await share()];
    expect(await locks.inspect('shared')).toMatchObject({ mode: 'shared', fencingToken: a.fencingToken });
    expect(await locks.forceRelease('shared', { owner: digestOf(b.owner) })).toBe(true);
    expect([a.isHeld, b.isHeld, c.isHeld]).toEqual([true, false, true]);
    expect((await locks.inspect('shared'))!.holders.map(({ digest }) => digest)).toEqual(
      [a, c].map((each) => digestOf(each.owner)),
    );
    expect(await locks.forceRelease('shared')).toBe(true);
    expect([a.isHeld, c.isHeld]).toEqual([false, false]);
    expect(c.signal.reason).toMatchObject({ reason: 'forced' });
  },
);

it('a call that is refused permits is told one holder and how many others there are, and what it asked for [G893]', async () => {
  const locks = await openLocks({ memory: true });
  const held = [];
  for (let count = 0; count < 3; count++) held.push(await locks.acquirePermits('full', { limit: 3 }));
  const refusal = locks.acquirePermits('full', { limit: 3, permits: 2, waitMs: 0 });
  await expect(refusal).rejects.toMatchObject({
    code: 'LOCK_CONTENDED',
    holder: parseOwner(held[0]!.owner),
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
});

it('on Redis, too, a call that is refused permits is told one holder, and how many others there are', async () => {
  const locks = await openLocks({ redis: server.url });
  const held = [await locks.acquirePermits('full', { limit: 2 }), await locks.acquirePermits('full', { limit: 2 })];
  const refusal = await locks.acquirePermits('full', { limit: 2, waitMs: 0 }).catch((error: unknown) => error as Error);
  expect(refusal).toMatchObject({ code: 'LOCK_CONTENDED', permits: 1, others: 1, holder: { pid: process.pid } });
  expect((refusal as Error).message).toMatch(
    /^1 permit of "full" is not free: the lock is held by pid \d+ on \S+ and 1 other \(one of their leases runs for another \d+ ms\); /,
  );
  await Promise.all(held.map((permit) => permit.release()));
});
