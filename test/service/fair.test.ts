import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { haveWaited, queued } from '../support/queue.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, untilQueued } = await sceneOfFile({ fair: true });

/** Fair services that already listen: before its first wait a process has no place in the queue. */
async function openFair(count: number, settings: RedisLockSettings = {}): Promise<LockService[]> {
  const services = await Promise.all(Array.from({ length: count }, () => open(settings)));
  for (const locks of services) await haveWaited(server, locks);
  return services;
}

it('calls of several processes with fair: true are served in the order of their arrival [G116]', async () => {
  const services = await openFair(4);
  const holder = await services[3]!.acquire('order');
  const order: number[] = [];
  const calls: Promise<void>[] = [];
  for (let index = 0; index < 24; index++) {
    // Neither in turn nor in blocks: 0 1 2 2 1 0 0 1 2 ...
    const locks = services[[0, 1, 2, 2, 1, 0][index % 6]!]!;
    calls.push(locks.withLock('order', { ttlMs: 10_000 + (index % 3) * 5_000 }, () => void order.push(index)));
    await sleep(5); // longer than the slack plus the error of the clocks
  }
  await untilQueued('order', 3); // a place for each process
  await holder.release();
  await Promise.all(calls);
  expect(order).toEqual(Array.from({ length: 24 }, (_, index) => index));
  expect(await server.keys('lock:{order}*')).toEqual([]);
});

it('with fair: true a later call does not take a lock that was granted to a call that has given up', async () => {
  const { proxy, locks } = await openBehindProxy();
  const [others] = await openFair(1);
  for (let turn = 0; turn < 2; turn++) await (await locks.acquire('given up')).release(); // the second like any later one
  const order: string[] = [];
  proxy.holdReplies();
  const controller = new AbortController();
  const first = locks.acquire('given up', { signal: controller.signal });
  await until(() => server.command('EXISTS', 'lock:{given up}'), { what: 'the first is granted' });
  const other = others!.withLock('given up', () => void order.push('other'));
  await untilQueued('given up');
  const own = locks.withLock('given up', () => void order.push('own'));
  controller.abort(new Error('given up'));
  await expect(first).rejects.toThrow('given up');
  await sleep(20); // longer than the slack plus the error of the clocks
  proxy.release();
  await Promise.all([own, other]);
  expect(order).toEqual(['other', 'own']);
});

it('with fair: true a later call does not take the lock that is handed over to the place of a call that has given up', async () => {
  const [locks, others, holders] = await openFair(3);
  const holder = await holders!.acquire('handed over');
  const order: string[] = [];
  const controller = new AbortController();
  const first = locks!.acquire('handed over', { signal: controller.signal });
  await untilQueued('handed over');
  const other = others!.withLock('handed over', () => void order.push('other'));
  await untilQueued('handed over', 2);
  await sleep(20); // longer than the slack, and the error of the clocks
  const own = locks!.withLock('handed over', () => void order.push('own'));
  controller.abort(new Error('given up'));
  await expect(first).rejects.toThrow('given up');
  await holder.release();
  await Promise.all([own, other]);
  expect(order).toEqual(['other', 'own']);
});

it('tryAcquire with fair: true never waits, has no place in the queue, and does not overtake [G117]', async () => {
  const [first, second, third] = await openFair(3);
  const held = await first!.acquire('tries');
  expect(await second!.tryAcquire('tries')).toBeNull();
  expect(await queued(server, 'tries')).toBe(0);
  const waiting = third!.acquire('tries');
  await untilQueued('tries');
  expect(await second!.tryAcquire('tries')).toBeNull();
  expect(await queued(server, 'tries')).toBe(1);
  await server.command('DEL', 'lock:{tries}');
  expect(await second!.tryAcquire('tries')).toBeNull(); // it is free, but it is the other's turn
  const lock = await waiting;
  expect(lock.isHeld).toBe(true);
  const from = performance.now();
  expect(await third!.tryAcquire('tries')).toBeNull();
  await lock.release();
  const [free, taken] = await Promise.all([second!.tryAcquire('tries'), second!.tryAcquire('tries')]);
  expect([await free!.release(), taken]).toEqual([true, null]);
  expect(performance.now() - from).toBeLessThan(1_000);
  expect(await held.release()).toBe(false);
});

it('in fair mode a process asks on behalf of its first call only, with the time when that call came [G623]', async () => {
  const [locks, others] = await openFair(2);
  const holder = await others!.acquire('first alone');
  const controller = new AbortController();
  const calls = [locks!.acquire('first alone', { signal: controller.signal }).catch(() => undefined)];
  await sleep(100);
  calls.push(locks!.acquire('first alone'));
  const places = async () => {
    const range = ['0', '+inf', 'BYSCORE', 'WITHSCORES'] as const;
    return (await server.command('ZRANGE', 'lock:{first alone}:queue', ...range)) as [string, string];
  };
  const [, firstCameAt, ...more] = await places();
  expect(more).toEqual([]);
  controller.abort();
  await until(async () => (await places())[1] !== firstCameAt, { what: 'it asks for the second' });
  const afterUs = Number((await places())[1]) - Number(firstCameAt);
  expect(afterUs).toBeGreaterThan(98_000);
  expect(afterUs).toBeLessThan(105_000);
  await holder.release();
  await (await calls[1])!.release();
});

/**
 * Calls of one process, and one call of another, in the order in which they are served, by name; each with the owner
 * of its lock.
 */
async function served(settings: RedisLockSettings, calls: [name: string, cameAtMs: number][], workMs = 0) {
  const [locks, others] = await openFair(2, settings);
  const key = `served ${JSON.stringify([settings, calls])}`.replaceAll(/[{}]/g, '');
  const holder = await locks!.acquire(key); // so that it asks for all its calls at once when it releases
  const from = performance.now();
  let cameLastMs = -1;
  const order: string[] = [];
  const owners: string[] = [];
  const works = [];
  for (const [name, cameAtMs] of calls) {
    // Calls of one time come in one turn of the event loop.
    if (cameAtMs > cameLastMs) await sleep(from + cameAtMs - performance.now());
    cameLastMs = cameAtMs;
    const service = name === 'other' ? others! : locks!;
    works.push(
      service.withLock(key, async ({ owner }) => {
        order.push(name);
        owners.push(owner);
        await sleep(workMs);
      }),
    );
  }
  await untilQueued(key);
  await holder.release();
  await Promise.all(works);
  return { order, owners };
}

it('in fair mode a process passes the lock on to calls that came before all that wait elsewhere, or later by up to the slack [G624]', async () => {
  const calls: [string, number][] = [
    ['first', 0],
    ['earlier', 90],
    ['other', 120],
    ['later', 120],
    ['last', 125],
  ];
  const { order, owners } = await served({ cohortMs: 60_000 }, calls);
  expect(order).toEqual(['first', 'earlier', 'later', 'other', 'last']);
  expect(owners[1]).toBe(owners[0]); // passed on, not asked for again
});

it('in fair mode a process passes the lock on within the slack only for cohortMs, but without a limit to calls that came before [G625]', async () => {
  const settings = { cohortMs: 100 };
  const within = await served(
    settings,
    [
      ['first', 0],
      ['other', 20],
      ['second', 20],
    ],
    10,
  );
  expect(within.order).toEqual(['first', 'second', 'other']);
  const late = await served(
    settings,
    [
      ['first', 0],
      ['other', 20],
      ['second', 20],
    ],
    150,
  );
  expect(late.order).toEqual(['first', 'other', 'second']);
  const before = await served(
    settings,
    [
      ['first', 0],
      ['second', 50],
      ['other', 80],
    ],
    150,
  );
  expect(before.order).toEqual(['first', 'second', 'other']);
  expect(before.owners[1]).toBe(before.owners[0]);
});

it('a call beyond maxWaiters is rejected at once [G126]', async () => {
  const locks = await open({ maxWaiters: 2 });
  await haveWaited(server, locks);
  const holder = await locks.acquire('fair-max');
  const calls = [locks.acquire('fair-max'), locks.acquire('fair-max')];
  await expect(locks.acquire('fair-max')).rejects.toMatchObject({ code: 'LOCK_CONTENDED', maxWaiters: 2 });
  await holder.release();
  for (const call of calls) await (await call).release();
});
