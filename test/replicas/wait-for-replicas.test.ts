import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { Primary } from './primary.js';

/** For waits that are in vain. */
const BRIEFLY = { count: 1, timeoutMs: 100 };

describe('With waitForReplicas', () => {
  let primary: Primary;

  beforeAll(async () => {
    primary = await Primary.start();
  });
  afterEach(async () => {
    primary.server.resume();
    await primary.letIn();
  });
  afterAll(() => primary.stop());

  const open = (waitForReplicas: RedisLockSettings['waitForReplicas'], settings: RedisLockSettings = {}) =>
    openLocks({ redis: primary.url, commandTimeoutMs: 10_000, waitForReplicas, ...settings });
  const fewer = (of: number, timeoutMs: number) => ({
    code: 'LOCK_UNAVAILABLE',
    causes: [
      expect.objectContaining({ problem: expect.stringContaining(`of ${of} replicas had it within ${timeoutMs} ms`) }),
    ],
  });

  describe('a lock that the replica does not get in time', () => {
    it('a lock that the replica does not get in time is refused and given back, and the error says how many replicas had it [G74]', async () => {
      const locks = await open(BRIEFLY);
      primary.cutOff();
      const key = freshKey();
      await expect(locks.acquire(key)).rejects.toMatchObject(fewer(1, 100));
      await primary.isFree(key);
    });

    it('leaves a parcel its time, if it is adopted', async () => {
      const sender = await openLocks({ redis: primary.url });
      const locks = await open(BRIEFLY);
      const key = freshKey();
      const parcel = await (await sender.acquire(key)).detach({ ttlMs: 3_600_000 });
      primary.cutOff();
      await expect(locks.adopt(parcel)).rejects.toMatchObject(fewer(1, 100));
      const holder = async () => (await sender.inspect(key))!;
      await until(async () => (await holder()).holder?.detached, { what: 'the parcel has it again' });
      expect((await holder()).remainingMs).toBeGreaterThan(3_000_000);
      await primary.letIn();
      expect(await sender.release(parcel)).toBe(true);
    });

    it('a lock that was handed over and does not reach the replica in time is refused to the waiter, and goes on to nobody [G75]', async () => {
      const [holder, waiter] = [await open(undefined), await open(BRIEFLY)];
      const key = freshKey();
      const held = await holder.acquire(key);
      const attempt = waiter.acquire(key);
      await queued(key);
      primary.cutOff();
      await held.release();
      await expect(attempt).rejects.toMatchObject(fewer(1, 100));
      await primary.isFree(key);
    });
  });

  describe('a wait that ends in a fault is no answer:', () => {
    it('a lock whose primary hangs while it waits for replicas is refused [G76]', async () => {
      const locks = await open({ count: 1, timeoutMs: 500 }, { commandTimeoutMs: 1_000 });
      const key = freshKey();
      await locks.isLocked(key); // connected
      primary.cutOff();
      const attempt = expect(locks.acquire(key)).rejects.toThrow('no answer within 1500 ms whether replicas have it');
      await primary.isWaitedFor();
      primary.server.pause();
      await attempt;
      primary.server.resume();
      await primary.isFree(key);
      await primary.letIn();
      await until(async () => (await locks.tryAcquire(key).catch(() => null)) !== null, { what: 'it serves again' });
    });
  });

  /** So many processes stand in the queue of the lock. */
  function queued(key: string, count = 1): Promise<unknown> {
    return until(async () => (await primary.server.command('ZCOUNT', `lock:{${key}}:queue`, '0', '+inf')) === count, {
      what: `${count} wait for the lock`,
    });
  }
});
