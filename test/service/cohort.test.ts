import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcquireOptions, Lock, LockService, RedisLockSettings } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { ownerOn } from '../support/stored.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

/** The time of a cohort does not matter unless a test says so. */
const open = (settings: RedisLockSettings = {}) => openLocks({ redis: server.url, cohortMs: 60_000, ...settings });
const waiting = async (locks: LockService, key: string, count: number) =>
  until(async () => ((await locks.inspect(key))?.waiters ?? 0) === count, { what: `${count} calls wait` });
/** Passed on means: without asking Redis, under the owner value that stands there. */
const batches = (owners: readonly string[]) => owners.filter((owner, index) => owner !== owners[index - 1]).length;

/** Services A, B, C, ... with so many waiters each, all behind one holder. @returns who was served, in that order */
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
    await untilQueued(server, key, index + 1);
  }
  await holder.release();
  await Promise.all(calls);
  return { order: order.join(''), locks };
}

describe('a lock is passed on among the calls of one process', () => {
  it('for a thousand turns at the cost of a few commands', async () => {
    const locks = await open();
    let turns = 0;
    await locks.withLock('turns', () => {});
    await server.resetCalls();
    const worker = async () => {
      for (let turn = 0; turn < 10; turn++) await locks.withLock('turns', () => void turns++);
    };
    await Promise.all(Array.from({ length: 100 }, worker));
    expect(turns).toBe(1_000);
    expect(await scriptCalls(server)).toBeLessThan(50);
  });

  it('a lock is passed on within a process in the order of the calls, each with a larger fencing token, also past those who give up [G112]', async () => {
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
    await untilQueued(server, 'order', 1);
    controller.abort();
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual(Array.from({ length: 30 }, (_, index) => index).filter((index) => index % 3 !== 1));
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
  });

  it('and the one before, released a second time, does not take it away', async () => {
    const locks = await open();
    const first = await locks.acquire('twice');
    const [second, third] = [locks.acquire('twice'), locks.acquire('twice')];
    await waiting(locks, 'twice', 2);
    await first.release();
    const passing = await second;
    expect(await passing.release()).toBe(true);
    const holder = await third;
    expect(holder.owner).toBe(passing.owner);
    await passing.release();
    await expect(passing.extend()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect([holder.isHeld, passing.isHeld]).toEqual([true, false]);
    expect(await ownerOn(server, 'twice')).toBe(holder.owner);
  });

  it('which counts from the grant, not from the pass', async () => {
    const locks = await open();
    const first = await locks.acquire('counts', { ttlMs: 10_000 });
    const calls = [1, 2, 3].map(() => locks.acquire('counts', { ttlMs: 10_000 }));
    await waiting(locks, 'counts', 3);
    await first.release();
    const granted = await calls[0]!;
    const deadline = performance.now() + granted.remainingMs;
    await sleep(60);
    await granted.release();
    const passedOn = await calls[1]!;
    expect(passedOn.owner).toBe(granted.owner);
    expect(performance.now() + passedOn.remainingMs).toBeLessThan(deadline + 5);
    await passedOn.release();
    await calls[2]!;
  });
});

it('inspect tells the last of the fencing tokens that are reserved for those it is passed on to', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await others.acquire('inspected');
  const calls = [1, 2, 3].map(() => locks.acquire('inspected'));
  await untilQueued(server, 'inspected', 1);
  await holder.release();
  const told: (number | undefined)[] = [];
  const held: number[] = [];
  for (const call of calls) {
    const lock = await call;
    held.push(lock.fencingToken);
    told.push((await others.inspect('inspected'))?.fencingToken);
    await lock.release();
  }
  expect(told).toEqual(held.map(() => held.at(-1)));
});

describe('a lease of its own, from Redis, has', () => {
  /** One holds, three wait; the second is as told. @returns what the owner values say about who passed on to whom */
  async function ownersWith(key: string, request: AcquireOptions) {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire(key);
    const requests = [{}, {}, request, {}];
    const calls = requests.map((each) => locks.acquire(key, each));
    await untilQueued(server, key, 1);
    await holder.release();
    const owners: string[] = [];
    for (const call of calls) {
      const lock = await call;
      owners.push(lock.owner);
      const leftMs = lock.remainingMs; // what it says after an extension is not what Redis said before
      const remainingMs = (await server.command('PTTL', `lock:{${key}}`)) as number;
      expect(leftMs).toBeLessThanOrEqual(remainingMs);
      expect(remainingMs).toBeLessThanOrEqual(requests[owners.length - 1]!.ttlMs ?? 30_000);
      await lock.release();
    }
    return owners;
  }

  it('not who wants the same as the one before: to that one it is passed on', async () => {
    expect(batches(await ownersWith('same', {}))).toBe(1);
  });

  it('who wants a shorter ttl', async () => {
    expect(batches(await ownersWith('shorter', { ttlMs: 5_000 }))).toBe(3);
  });

  it('a call that wants a longer ttl than the one before gets a lease of its own from Redis [G113]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('longer');
    const calls = [30_000, 60_000].map((ttlMs) => locks.acquire('longer', { ttlMs }));
    await untilQueued(server, 'longer', 1);
    await holder.release();
    await (await calls[0]!).release();
    const lock = await calls[1]!;
    expect(await server.command('PTTL', 'lock:{longer}')).toBeGreaterThan(50_000);
    expect(lock.remainingMs).toBeGreaterThan(50_000);
  });

  it('who has no watchdog, so that nothing of the lease is used up', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('fresh');
    const calls = [true, false].map((watchdog) => locks.acquire('fresh', { watchdog, ttlMs: 6_000 }));
    await untilQueued(server, 'fresh', 1);
    await holder.release();
    const first = await calls[0]!;
    await sleep(50);
    const releasedAt = performance.now();
    await first.release();
    const second = await calls[1]!;
    expect(second.owner).not.toBe(first.owner);
    expect(performance.now() + second.remainingMs).toBeGreaterThan(releasedAt + 6_000 * 0.99 - 2 - 1);
  });

  it('who follows one that used up a third of its lease', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('third');
    const calls = [false, true].map((watchdog) => locks.acquire('third', { watchdog, ttlMs: 2_100 }));
    await untilQueued(server, 'third', 1);
    await holder.release();
    const first = await calls[0]!;
    await sleep(710);
    expect(await first.release()).toBe(true);
    expect((await calls[1]!).owner).not.toBe(first.owner);
  });

  it('who follows one whose lease could not be made longer', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, cohortMs: 60_000, commandTimeoutMs: 300 });
    const others = await open();
    const holder = await others.acquire('not-extended', { ttlMs: 5_000 });
    const requests = [{ ttlMs: 5_000 }, { ttlMs: 20_000 }];
    const calls = requests.map((request) => locks.acquire('not-extended', request));
    await untilQueued(server, 'not-extended', 1);
    await holder.release();
    const first = await calls[0]!;
    proxy.hold();
    await expect(first.extend(20_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await first.release();
    proxy.cut();
    proxy.release();
    const second = await calls[1]!.catch(() => undefined);
    const inRedis = (await server.command('PTTL', 'lock:{not-extended}')) as number;
    expect(second?.isHeld ? second.remainingMs : 0).toBeLessThanOrEqual(Math.max(0, inRedis));
    await proxy.stop();
  });
});

describe('other processes have their turn', () => {
  it('other processes have their turn after as many passes as cohortPasses says [G115]', async () => {
    const { order, locks } = await served('passes', [10, 10], { cohortPasses: 3 });
    expect(order).toBe('AAAABBBBAAAABBBBAABB');
    expect(batches(locks.map(({ owner }) => owner))).toBe(6);
    const tokens = locks.map(({ fencingToken }) => fencingToken);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
  });

  it('after each holder, with cohortPasses 0', async () => {
    const { order, locks } = await served('no-passes', [4, 4], { cohortPasses: 0 });
    expect(order).toBe('ABABABAB');
    expect(new Set(locks.map(({ owner }) => owner)).size).toBe(8);
  });

  it('after the time that cohortMs says', async () => {
    const { order } = await served('time', [3, 3], { cohortMs: 30 }, () => sleep(40));
    expect(order).toBe('ABABAB');
    const unbounded = await served('long-time', [3, 3], { cohortMs: 20_000 }, () => sleep(40));
    expect(unbounded.order).toBe('AAABBB');
  });

  it('before calls that came after the grant', async () => {
    const [locks, others, holding] = [await open(), await open(), await open()];
    const order: string[] = [];
    const holder = await holding.acquire('late');
    const gate = new Gate();
    const calls = [
      locks.withLock('late', () => (order.push('A1'), gate.opened)),
      locks.withLock('late', () => void order.push('A2')),
    ];
    await untilQueued(server, 'late', 1);
    calls.push(others.withLock('late', () => void order.push('B')));
    await untilQueued(server, 'late', 2);
    await holder.release();
    await until(() => order.length === 1, { what: 'the first is served' });
    calls.push(
      locks.withLock('late', () => void order.push('A3')),
      locks.withLock('late', () => void order.push('A4')),
    );
    gate.open();
    await Promise.all(calls);
    expect(order).toEqual(['A1', 'A2', 'B', 'A3', 'A4']);
  });

  it('each of several processes has its turn after at most one batch of every other [G114]', async () => {
    const { order } = await served('rounds', [9, 9, 9, 9], { cohortPasses: 2 });
    expect(order).toBe('AAABBBCCCDDD'.repeat(3));
  });
});

describe('a crowd of calls', () => {
  it('of 1 000 in each of 4 services is served, with one place in Redis for each service', async () => {
    const services = await Promise.all(Array.from({ length: 4 }, () => open({ cohortPasses: 250 })));
    const holder = await (await open()).acquire('crowd');
    let [turns, places] = [0, 0];
    const work = async () => {
      if (turns++ % 100 === 0) places = Math.max(places, await queued(server, 'crowd'));
    };
    const calls = services.flatMap((locks) =>
      Array.from({ length: 1_000 }, () => locks.withLock('crowd', { waitMs: 60_000 }, work)),
    );
    await untilQueued(server, 'crowd', 4);
    await holder.release();
    await Promise.all(calls);
    expect(turns).toBe(4_000);
    expect(places).toBeGreaterThan(0);
    expect(places).toBeLessThanOrEqual(4);
    await until(() => services.every(({ size }) => size === 0), { what: 'nothing is kept' });
    expect(await server.keys('lock:{crowd}*')).toEqual([]);
  });

  it.each([
    ['Redis', () => ({ redis: server.url })],
    ['memory', () => ({ memory: true as const })],
  ])('that is larger than maxWaiters is refused at once (%s)', async (_name, backend) => {
    const locks = await openLocks({ ...backend(), maxWaiters: 3, cohortMs: 60_000 });
    const holder = await locks.acquire('max');
    const calls = [1, 2, 3].map(() => locks.acquire('max', { waitMs: 60_000 }));
    const refused = locks.acquire('max', { waitMs: 60_000 });
    await expect(refused).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
      maxWaiters: 3,
      waitedMs: expect.any(Number),
    });
    await expect(refused).rejects.toThrow('3 calls of this process are already waiting for it. Raise maxWaiters');
    await holder.release();
    const next = await calls[0]!; // one place is free again
    const last = locks.acquire('max');
    await expect(locks.acquire('max')).rejects.toMatchObject({ maxWaiters: 3 });
    await next.release();
    for (const call of [...calls.slice(1), last]) await (await call).release();
    expect(locks.size).toBe(0);
  });

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
    const refused = { status: 'rejected', reason: { code: 'LOCK_CONTENDED', maxWaiters: 2 } };
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

describe('in memory', () => {
  it('calls are served in their order, with growing tokens, and passed the lock alike', async () => {
    const locks = await openLocks({ memory: true, cohortPasses: 2, cohortMs: 60_000 });
    const order: number[] = [];
    const seen: Pick<Lock, 'owner' | 'fencingToken'>[] = [];
    const calls = Array.from({ length: 10 }, (_, index) =>
      locks.withLock('memory', (lock) => {
        order.push(index);
        seen.push(lock);
      }),
    );
    await Promise.all(calls);
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const tokens = seen.map(({ fencingToken }) => fencingToken);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    // The first one asked for itself alone, then three in turn.
    expect(batches(seen.map(({ owner }) => owner))).toBe(4);
  });
});

describe('Those to whom a lock was passed on', () => {
  it('are told of like all others: each acquires, and each releases', async () => {
    const locks = await open();
    const events: string[] = [];
    locks.events$.subscribe(({ type }) => events.push(type));
    const owners: string[] = [];
    const turn = () => locks.withLock('told', async ({ owner }) => void owners.push(owner));
    await Promise.all(Array.from({ length: 4 }, turn));
    expect(batches(owners)).toBeLessThan(4);
    expect(events).toEqual(Array.from({ length: 4 }, () => ['acquired', 'released']).flat());
  });
});

describe('a lock that is taken by force while it is passed on', () => {
  /** So many calls that wait: all are of one cohort. @returns their turns, in order */
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
    'a lock that is taken by force is passed on no more until Redis has granted it again: %s [G107]',
    async (where) => {
      const key = `forced ${where}`;
      const [locks, others, waiter] = [await open({ cohortPasses: 1_000 }), await open(), await open()];
      const before = await others.acquire(key);
      const { turns, over } = calls(locks, key, 1_000);
      await untilQueued(server, key, 1); // from now on it listens
      const next = waiter.acquire(key);
      await untilQueued(server, key, 2);
      await before.release();
      await until(() => turns.length > 20, { what: 'it is passed on' });
      await (where === 'here' ? locks : others).forceRelease(key);
      const lock = await next;
      if (where !== 'here') await until(async () => (await queued(server, key)) === 1, { what: 'it has asked Redis' });
      const { length } = turns;
      expect(length).toBeLessThan(1_000);
      await sleep(50); // of turns of a millisecond
      expect(turns).toHaveLength(length);
      await lock.release();
      await over;
      expect(turns[length]).toBeGreaterThan(lock.fencingToken);
      expect(turns).toHaveLength(1_000);
    },
  );
});
