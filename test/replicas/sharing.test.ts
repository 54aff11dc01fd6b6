import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { counterOn } from '../support/stored.js';
import { Primary } from './primary.js';

const PATIENTLY = { count: 1, timeoutMs: 10_000 };

describe('The wait for replicas', () => {
  let primary: Primary;

  beforeAll(async () => {
    primary = await Primary.start();
  });
  afterEach(() => primary.letIn());
  afterAll(() => primary.stop());

  const open = (waitForReplicas: RedisLockSettings['waitForReplicas'], settings: RedisLockSettings = {}) =>
    openLocks({ redis: primary.url, commandTimeoutMs: 10_000, waitForReplicas, ...settings });

  it('is one for all that come while another is open', async () => {
    const locks = await open(PATIENTLY);
    const keys = Array.from({ length: 20 }, () => freshKey());
    const waits = await primary.waits(async () => {
      primary.cutOff();
      const first = locks.acquire(freshKey());
      await primary.isWaitedFor();
      const others: Promise<unknown>[] = [];
      for (const key of keys) {
        others.push(locks.acquire(key));
        await until(async () => (await primary.owners(key)).primary, { what: 'it is granted' });
      }
      primary.uncut();
      await Promise.all([first, ...others]);
    });
    expect(waits).toBe(2);
  });

  it('holds up nothing else: locks are released, inspected and refused meanwhile', async () => {
    const locks = await open(PATIENTLY);
    const held = await locks.acquire(freshKey());
    primary.cutOff();
    const key = freshKey();
    const attempt = locks.acquire(key);
    await primary.isWaitedFor();
    expect(await locks.isLocked(key)).toBe(true);
    expect(await held.release()).toBe(true);
    const others = await open(PATIENTLY);
    expect(await others.tryAcquire(key)).toBeNull();
    await primary.letIn();
    expect(await attempt).toMatchObject({ isHeld: true });
  });

  it('is one for all holders in turn of a process: the tokens of all are with the replica before the first begins', async () => {
    const locks = await open(PATIENTLY, { cohortMs: 60_000 });
    const other = await open(undefined);
    const key = freshKey();
    const held = await other.acquire(key);
    const tokens: number[] = [];
    const counters: number[] = [];
    const waits = await primary.waits(async () => {
      const turns = Array.from({ length: 10 }, () =>
        locks.withLock(key, async ({ fencingToken }) => {
          tokens.push(fencingToken);
          counters.push(await counterOn(primary.replica));
        }),
      );
      await until(async () => (await primary.server.command('ZCOUNT', `lock:{${key}}:queue`, '0', '+inf')) === 1, {
        what: 'they wait',
      });
      await held.release();
      await Promise.all(turns);
    });
    expect(waits).toBe(1);
    expect(tokens).toEqual(Array.from({ length: 10 }, (_, turn) => tokens[0]! + turn));
    expect(Math.min(...counters)).toBeGreaterThanOrEqual(tokens.at(-1)!);
  });

  it('an extension with waitForReplicas that the replica does not get is none [G77]', async () => {
    const locks = await open({ count: 1, timeoutMs: 1_000 }, { ttlMs: 60_000 });
    const lock = await until(() => locks.tryAcquire(freshKey()).catch(() => null), {
      what: 'it is acknowledged in time',
    });
    primary.cutOff();
    await expect(lock.extend()).rejects.toThrow('0 of 1 replicas had it within 1000 ms');
    await primary.letIn();
    const extended = () =>
      lock.extend().then(
        () => true,
        () => false,
      );
    await until(extended, { what: 'an extension is acknowledged in time' });
    expect(lock.isHeld).toBe(true);
  });

  it('is gone from the lease that an extension brings, too', async () => {
    const locks = await open(PATIENTLY, { ttlMs: 60_000, watchdog: false });
    const lock = await locks.acquire(freshKey());
    primary.cutOff();
    const extension = lock.extend();
    await primary.isWaitedFor();
    const since = performance.now();
    await until(() => performance.now() - since > 150, { what: 'time has passed' });
    await primary.letIn();
    await extension;
    expect(lock.remainingMs).toBeLessThan(60_000 - 600 - 2 - 150);
  });

  it('ends a lock at its deadline whose extensions the replica does not get', async () => {
    const locks = await open({ count: 1, timeoutMs: 900 }, { ttlMs: 2_700 });
    const { signal } = await until(() => locks.tryAcquire(freshKey()).catch(() => null), {
      what: 'it is acknowledged in time',
    });
    primary.cutOff();
    await until(() => signal.aborted, { what: 'the lock is lost' });
    expect(signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'unavailable' });
  });

  it('is in vain for twice its time at most when others wait in vain', async () => {
    const locks = await open({ count: 1, timeoutMs: 1_000 });
    await locks.isLocked(freshKey()); // connected
    const waits = await primary.waits(async () => {
      primary.cutOff();
      const refusals = [expect(locks.acquire(freshKey())).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' })];
      await primary.isWaitedFor();
      for (let others = 0; others < 10; others++) {
        refusals.push(expect(locks.acquire(freshKey())).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' }));
      }
      await Promise.all(refusals);
    });
    expect(waits).toBe(2); // the first, and one for all others
  });
});
