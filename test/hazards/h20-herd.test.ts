import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { tryLock, unlock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';

describe('H20: many wait for one lock', () => {
  it('a naive lock that wakes all waiters costs as many commands for one release as there are waiters', async () => {
    const server = await redisServer();
    const [redis, bell] = [clientOf(server), clientOf(server)];
    expect(await tryLock(redis, 'lock', 'holder', 60_000)).toBe(true);
    await bell.subscribe('released');
    let served = 0;
    const wait = (waiter: number) =>
      bell.on('message', () => void tryLock(redis, 'lock', `waiter ${waiter}`, 60_000).then((got) => got && served++));
    bell.setMaxListeners(0);
    for (let waiter = 0; waiter < 1_000; waiter++) wait(waiter);

    await server.resetCalls();
    await unlock(redis, 'lock', 'holder');
    await redis.publish('released', '');
    await until(() => served === 1, { what: 'one of them has it' });
    await redis.ping(); // behind all their attempts
    expect((await server.calls()).set).toBe(1_000);
  });

  it('this library costs some two commands a turn however many wait, and serves all, each service in its order [G172]', async () => {
    const server = await redisServer();
    const options = { redis: server.url, waitMs: 60_000 };
    const holder = await openLocks(options);
    // Redis cannot tell several services of one process from those of several.
    const services = await Promise.all([1, 2, 3].map(() => openLocks(options)));
    const lock = await holder.acquire('key');

    let inside = 0;
    const served: number[][] = [[], [], []];
    const waitAndWork = async (service: number, waiter: number) => {
      const got = await services[service]!.acquire('key');
      expect(++inside).toBe(1);
      served[service]!.push(waiter);
      await server.command('PING'); // while another would come in
      inside--;
      expect(await got.release()).toBe(true);
    };
    const counts = [500, 250, 250];
    const waits = counts.flatMap((count, service) =>
      Array.from({ length: count }, (_, waiter) => waitAndWork(service, waiter)),
    );
    await untilQueued(server, 'key', services.length);

    await server.resetCalls();
    await lock.release();
    await Promise.all(waits);
    expect(served).toEqual(counts.map((count) => Array.from({ length: count }, (_, waiter) => waiter)));
    expect((await scriptCalls(server)) / 1_000).toBeLessThan(2.5);
  });
});
