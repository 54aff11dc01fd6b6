import { describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
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

  it('this library costs some two commands a turn however many wait, and serves all, each process in its order [G172]', async () => {
    const server = await redisServer();
    const options = { redis: server.url, waitMs: 60_000 };
    const holder = await openLocks(options);
    const here = await openLocks(options);
    const [there, elsewhere] = await Promise.all([LockProcess.start(options), LockProcess.start(options)]);
    const lock = await holder.acquire('key');

    let inside = 0;
    const served: number[][] = [[], [], []];
    const turn = async (process: number, waiter: number, release: () => Promise<boolean>) => {
      expect(++inside).toBe(1);
      served[process]!.push(waiter);
      inside--;
      expect(await release()).toBe(true);
    };
    const waits = Array.from({ length: 500 }, (_, waiter) =>
      here.acquire('key').then((got) => turn(0, waiter, () => got.release())),
    );
    for (const [process, other] of [there, elsewhere].entries()) {
      const theirs = Array.from({ length: 250 }, (_, waiter) =>
        other.acquire('key').then(() => turn(process + 1, waiter, () => other.release('key'))),
      );
      waits.push(...theirs);
      await expect(other.acquire('key', { waitMs: 0 })).rejects.toThrow('LockContendedError'); // behind the others
    }
    await until(async () => (await here.inspect('key'))!.waiters >= 500, { what: 'all wait' });

    await server.resetCalls();
    await lock.release();
    await Promise.all(waits);
    expect(served).toEqual([500, 250, 250].map((count) => Array.from({ length: count }, (_, waiter) => waiter)));
    expect((await scriptCalls(server)) / 1_000).toBeLessThan(2.5);
  });
});
