import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts } from '../support/script-calls.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

/** Fair services that listen already: before its first wait a process has no place in the queue. */
async function openFair(count: number): Promise<LockService[]> {
  const services = await Promise.all(Array.from({ length: count }, () => openLocks({ redis: server.url, fair: true })));
  await Promise.all(services.map((locks, index) => listening(locks, `listening ${index}`)));
  return services;
}

/** Waits for longer than the slack, and the error of the clocks. */
const later = () => new Promise((resolve) => setTimeout(resolve, 5));

async function listening(locks: LockService, key: string): Promise<void> {
  await server.command('SET', `lock:{${key}}`, 'a person');
  const waiting = locks.acquire(key);
  await untilQueued(server, key, 1);
  await server.command('DEL', `lock:{${key}}`);
  await (await waiting).release();
}

describe('with fair: true', () => {
  it('calls of several services are served strictly in the order in which they came', async () => {
    const services = await openFair(4);
    const holder = await services[3]!.acquire('order');
    const order: number[] = [];
    const calls: Promise<void>[] = [];
    for (let index = 0; index < 24; index++) {
      // Neither in turn nor in blocks: 0 1 2 2 1 0 0 1 2 ...
      const locks = services[[0, 1, 2, 2, 1, 0][index % 6]!]!;
      calls.push(locks.withLock('order', () => void order.push(index)));
      await later();
    }
    await untilQueued(server, 'order', 3); // a place for each process
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual(Array.from({ length: 24 }, (_, index) => index));
    expect(await server.keys('lock:{order}*')).toEqual([]);
  });

  it('who gives up as the lock that it waits for is lost declines it, and those behind it are served', async () => {
    const [locks, others] = await openFair(2);
    const events: string[] = [];
    locks!.events$.subscribe(({ type }) => events.push(type));
    const held = await locks!.acquire('declined');
    const declining = locks!.acquire('declined', { signal: held.signal });
    await later();
    const [second, third] = [locks!.acquire('declined'), locks!.acquire('declined')];
    await others!.forceRelease('declined');
    await expect(declining).rejects.toMatchObject({ code: 'LOCK_LOST' });
    await (await second).release();
    await (await third).release();
    // It was passed on to the first, which gave it back, or that had given up a moment before.
    const count = (type: string) => events.filter((each) => each === type).length;
    expect(events.slice(0, 3)).toEqual(['acquired', 'lost', 'acquired']);
    expect(count('released')).toBe(count('acquired') - 1);
    await until(() => locks!.size === 0, { what: 'nothing is kept' });
  });

  it('who comes first is served first, also when its process has never waited before', async () => {
    const [newcomer, [others, holding]] = [await openLocks({ redis: server.url, fair: true }), await openFair(2)];
    const holder = await holding!.acquire('never-waited');
    const order: string[] = [];
    const calls = [newcomer.withLock('never-waited', () => void order.push('first'))];
    await newcomer.isLocked('never-waited'); // behind its attempt, on the same connection: Redis has seen that
    calls.push(others!.withLock('never-waited', () => void order.push('second')));
    await untilQueued(server, 'never-waited', 2);
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual(['first', 'second']);
  });

  it('calls with different ttls and without watchdog keep that order', async () => {
    const [locks, others] = await openFair(2);
    const holder = await others!.acquire('terms');
    const order: number[] = [];
    const calls: Promise<void>[] = [];
    for (let index = 0; index < 6; index++) {
      const request = { ttlMs: 10_000 + (index % 3) * 5_000, watchdog: index % 2 === 0 };
      calls.push(locks!.withLock('terms', request, () => void order.push(index)));
      await later();
    }
    await untilQueued(server, 'terms', 1);
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it('a newcomer does not get a lock that is free while others wait for it', async () => {
    const [first, second, third, fourth] = await openFair(4);
    await first!.acquire('barging');
    const order: string[] = [];
    const calls = [second!.withLock('barging', () => void order.push('second'))];
    await untilQueued(server, 'barging', 1);
    await later();
    calls.push(third!.withLock('barging', () => void order.push('third')));
    await untilQueued(server, 'barging', 2);
    await server.command('DEL', 'lock:{barging}');
    calls.push(fourth!.withLock('barging', () => void order.push('newcomer')));
    await Promise.all(calls);
    expect(order).toEqual(['second', 'third', 'newcomer']);
  });

  it('tryAcquire with fair: true never waits, has no place in the queue, and does not overtake [G117]', async () => {
    const [first, second, third] = await openFair(3);
    const held = await first!.acquire('tries');
    expect(await second!.tryAcquire('tries')).toBeNull();
    expect(await queued(server, 'tries')).toBe(0);
    const waiting = third!.acquire('tries');
    await untilQueued(server, 'tries', 1);
    expect(await second!.tryAcquire('tries')).toBeNull();
    expect(await queued(server, 'tries')).toBe(1);
    await server.command('DEL', 'lock:{tries}');
    expect(await second!.tryAcquire('tries')).toBeNull(); // it is free, but the other one's turn
    const lock = await waiting;
    expect(lock.isHeld).toBe(true);
    expect(await third!.tryAcquire('tries')).toBeNull();
    await lock.release();
    expect(await (await second!.tryAcquire('tries'))!.release()).toBe(true);
    expect(await held.release()).toBe(false);
  });

  it('who gives up makes room for the next one, in its order', async () => {
    const [locks, others] = await openFair(2);
    const holder = await others!.acquire('gives-up');
    const order: number[] = [];
    const controllers = Array.from({ length: 9 }, () => new AbortController());
    const calls: Promise<unknown>[] = [];
    for (const [index, { signal }] of controllers.entries()) {
      const service = index % 2 ? locks! : others!;
      calls.push(service.withLock('gives-up', { signal }, () => void order.push(index)).catch(() => {}));
      await later();
    }
    await untilQueued(server, 'gives-up', 1); // that of the holder waits until it gives the lock back
    for (const index of [0, 4, 5, 8]) controllers[index]!.abort();
    await later();
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual([1, 2, 3, 6, 7]);
  });

  it('a call beyond maxWaiters is rejected at once [G126]', async () => {
    const [locks] = [await openLocks({ redis: server.url, fair: true, maxWaiters: 2 })];
    await listening(locks, 'fair-max-warm');
    const holder = await locks.acquire('fair-max');
    const calls = [locks.acquire('fair-max'), locks.acquire('fair-max')];
    await expect(locks.acquire('fair-max')).rejects.toMatchObject({ code: 'LOCK_CONTENDED', maxWaiters: 2 });
    await holder.release();
    for (const call of calls) await (await call).release();
  });

  it('a redlock is refused: its nodes have no order of arrival in common', async () => {
    const redlock = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3'];
    await expect(openLocks({ redlock, fair: true })).rejects.toMatchObject({
      code: 'LOCK_OPTIONS',
      message: expect.stringContaining('got redlock'),
    });
  });

  it('calls are served in their order in memory, too', async () => {
    const locks = await openLocks({ memory: true, fair: true });
    const order: number[] = [];
    const calls = Array.from({ length: 30 }, (_, index) =>
      locks.withLock('memory', { ttlMs: 10_000 + (index % 3) }, () => void order.push(index)),
    );
    expect(await locks.tryAcquire('memory')).toBeNull();
    await Promise.all(calls);
    expect(order).toEqual(Array.from({ length: 30 }, (_, index) => index));
    expect(locks.size).toBe(0);
  });
});
