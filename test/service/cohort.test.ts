import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { AcquireOptions, Lock, LockService, RedisLockSettings } from 'nest-redis-lock';
import { queued } from '../support/queue.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile({ cohortMs: 60_000 });

/** Passed on means: without asking Redis, under the current owner value. */
const batches = (owners: readonly string[]) => owners.filter((owner, index) => owner !== owners[index - 1]).length;

/** How many times in a row each service was served: `AAB` is `A 2`, `B 1`. */
const runsIn = (order: string) => Array.from(order.matchAll(/(.)\1*/g), ([run, service]) => `${service} ${run.length}`);

/**
 * Services A, B, C, ... with this many waiters each, all behind one holder.
 * @returns the services in the order in which they were served
 */
async function served(key: string, waiters: number[], settings: RedisLockSettings, work = async () => {}) {
  const holder = await (await open()).acquire(key);
  const order: string[] = [];
  const locks: Pick<Lock, 'owner' | 'fencingToken'>[] = [];
  const calls: Promise<void>[] = [];
  for (const [index, count] of waiters.entries()) {
    const service = await open(settings);
    for (let call = 0; call < count; call++) {
      calls.push(
        service.withLock(key, { waitMs: 60_000 }, async (lock) => {
          order.push('ABCD'[index]!);
          locks.push(lock);
          await work();
        }),
      );
    }
    await untilQueued(key, index + 1);
  }
  await holder.release();
  await Promise.all(calls);
  return { order: order.join(''), locks };
}

it('a lock is passed on within a process in the order of the calls, each with a larger fencing token, even past calls that give up [G112]', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await others.acquire('order');
  const tokens = [holder.fencingToken];
  const order: number[] = [];
  const controller = new AbortController();
  const calls = Array.from({ length: 30 }, (_, index) =>
    locks
      .withLock('order', index % 3 === 1 ? { signal: controller.signal } : {}, ({ fencingToken }) => {
        order.push(index);
        tokens.push(fencingToken);
      })
      .catch(() => {}),
  );
  await untilQueued('order');
  controller.abort();
  await holder.release();
  await Promise.all(calls);
  expect(order).toEqual(Array.from({ length: 30 }, (_, index) => index).filter((index) => index % 3 !== 1));
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
});

describe('a lease of its own, from Redis, has', () => {
  /**
   * One call holds, two wait; the first of them works for a while.
   * @returns whether the lock was passed on to the second
   */
  async function isPassedOn(key: string, [first, second]: [AcquireOptions, AcquireOptions], workMs = 0) {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire(key);
    const calls = [locks.acquire(key, first), locks.acquire(key, second)];
    await untilQueued(key);
    await holder.release();
    const before = await calls[0]!;
    await sleep(workMs);
    const deadline = performance.now() + before.remainingMs;
    expect(await before.release()).toBe(true);
    const lock = await calls[1]!;
    expect(lock.fencingToken).toBeGreaterThan(before.fencingToken);
    expect(lock.remainingMs).toBeLessThanOrEqual((await server.command('PTTL', `lock:{${key}}`)) as number);
    const isPassed = lock.owner === before.owner;
    // It counts from the grant, not from the pass; a grant of its own is not used up.
    const [leastMs, endsAt] = isPassed ? [0, deadline + 5] : [(second.ttlMs ?? 30_000) * 0.99 - 2 - 100, Infinity];
    expect(lock.remainingMs).toBeGreaterThan(leastMs);
    expect(performance.now() + lock.remainingMs).toBeLessThan(endsAt);
    // A second release takes it from nobody.
    await before.release();
    await expect(before.extend()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect([lock.isHeld, await ownerOf(key)]).toEqual([true, lock.owner]);
    await lock.release();
    return isPassed;
  }

  it.each<[who: string, [AcquireOptions, AcquireOptions], workMs: number, isPassed: boolean]>([
    ['not who wants the same as the one before', [{}, {}], 1_500, true],
    ['who wants a shorter ttl', [{}, { ttlMs: 5_000 }], 0, false],
    ['who has no watchdog', [{}, { watchdog: false }], 0, false],
    ['who keeps it after its work', [{ holdMs: 1 }, {}], 0, false],
    [
      'who follows one that used up a third of its lease',
      [{ watchdog: false, ttlMs: 2_100 }, { ttlMs: 2_100 }],
      710,
      false,
    ],
  ])('%s', async (who, calls, workMs, isPassed) => {
    expect(await isPassedOn(who, calls, workMs)).toBe(isPassed);
  });

  it('a call that wants a longer ttl than the one before gets a lease of its own from Redis [G113]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('longer');
    const calls = [30_000, 60_000].map((ttlMs) => locks.acquire('longer', { ttlMs }));
    await untilQueued('longer');
    await holder.release();
    await (await calls[0]!).release();
    const lock = await calls[1]!;
    expect(await server.command('PTTL', 'lock:{longer}')).toBeGreaterThan(50_000);
    expect(lock.remainingMs).toBeGreaterThan(50_000);
  });
});

it('other processes have their turn after 100 passes [G115]', async () => {
  const { order, locks } = await served('passes', [250, 250], {});
  expect(runsIn(order)).toEqual(['A 101', 'B 101', 'A 101', 'B 101', 'A 48', 'B 48']);
  expect(batches(locks.map(({ owner }) => owner))).toBe(6);
  const tokens = locks.map(({ fencingToken }) => fencingToken);
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
});

it.each([
  [30, 'ABABAB'],
  [20_000, 'AAABBB'],
])('other processes have their turn after the time that cohortMs says: %i ms', async (cohortMs, order) => {
  expect((await served(`time ${cohortMs}`, [3, 3], { cohortMs }, () => sleep(40))).order).toBe(order);
});

it('other processes have their turn after 100 ms, unless cohortMs says otherwise', async () => {
  const { order } = await served('time by default', [5, 5], { cohortMs: undefined }, () => sleep(40));
  expect(order).toBe('AAABBBAABB');
});

it('each of several processes has its turn after at most one batch of every other [G114]', async () => {
  const { order } = await served('rounds', [202, 202, 202, 202], {});
  const round = ['A 101', 'B 101', 'C 101', 'D 101'];
  expect(runsIn(order)).toEqual([...round, ...round]);
});

describe('a crowd of calls', () => {
  it('counts the calls of all modes of a key [G1006]', async () => {
    const [locks, others] = [await open({ maxWaiters: 2 }), await open()];
    const holder = await others.acquire('modes');
    const wait = { waitMs: 60_000 };
    const waiting = (count: number) =>
      until(async () => (await locks.inspect('modes'))!.waiters === count, { what: `${count} calls wait` });
    const calls: Promise<{ release(): Promise<boolean> }>[] = [locks.acquire('modes', wait)];
    await waiting(1);
    calls.push(locks.acquire('modes', { ...wait, mode: 'shared' }));
    await waiting(2);
    calls.push(locks.acquirePermits('modes', { ...wait, limit: 3 })); // it asks, and does not wait yet
    await waiting(3);
    const more = [
      locks.acquire('modes', wait),
      locks.acquire('modes', { ...wait, mode: 'shared' }),
      locks.acquirePermits('modes', { ...wait, limit: 3 }),
    ];
    const message = expect.stringMatching(
      /calls of this process are already waiting for .*\. Raise maxWaiters/,
    ) as string;
    const refused = { status: 'rejected', reason: { code: 'LOCK_CONTENDED', maxWaiters: 2, waitedMs: 0, message } };
    expect(await Promise.allSettled(more)).toMatchObject([refused, refused, refused]);
    await holder.release();
    await Promise.all(calls.map(async (call) => (await call).release()));
  });

  it('may wait for one that may be free: who asks for it does not wait yet', async () => {
    const [locks, others] = [await open({ maxWaiters: 1 }), await open()];
    const free = await Promise.all([1, 2].map(() => locks.withLock('one-asks', () => true)));
    expect(free).toEqual([true, true]);
    await others.acquire('one-waits');
    const waits = [1, 2, 3].map(() => locks.acquire('one-waits', { waitMs: 600 }).catch((error: unknown) => error));
    expect(await waits[2]).toMatchObject({ maxWaiters: 1 });
    expect(await waits[0]).toMatchObject({ code: 'LOCK_CONTENDED', maxWaiters: undefined });
  });
});

/**
 * This many waiting calls: all of them are in one cohort.
 * @returns their turns, in order
 */
function calls(locks: LockService, key: string, count: number) {
  const turns: number[] = [];
  const call = () =>
    locks.withLock(key, { onLost: 'ignore', waitMs: 60_000 }, async ({ fencingToken }) => {
      turns.push(fencingToken);
      await sleep(1);
    });
  return { turns, over: Promise.all(Array.from({ length: count }, call)) };
}

it.each(['here', 'by another process'])(
  'a lock that is taken by force is not passed on until Redis has granted it again: %s [G107]',
  async (where) => {
    const key = `forced ${where}`;
    const [locks, others, waiter] = [await open(), await open(), await open()];
    const before = await others.acquire(key);
    const { turns, over } = calls(locks, key, 1_000);
    await untilQueued(key); // from now on it listens
    const next = waiter.acquire(key);
    await untilQueued(key, 2);
    await before.release();
    await until(() => turns.length > 20, { what: 'it is passed on' });
    await (where === 'here' ? locks : others).forceRelease(key);
    const lock = await next;
    if (where !== 'here') await until(async () => (await queued(server, key)) === 1, { what: 'it has asked Redis' });
    const { length } = turns;
    expect(length).toBeLessThan(1_000);
    await sleep(50); // turns of one millisecond
    expect(turns).toHaveLength(length);
    await lock.release();
    await over;
    expect(turns[length]).toBeGreaterThan(lock.fencingToken);
    expect(turns).toHaveLength(1_000);
  },
);
