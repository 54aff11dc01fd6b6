import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { scriptCalls } from '../support/script-calls.js';
import { tryLock, unlock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

describe('H23: work under a lock calls other work under the same lock', () => {
  it('a naive lock that is acquired again under itself waits for itself until it gives up', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    let calls = 0;
    const withNaiveLock = async <T>(work: () => T | Promise<T>): Promise<T> => {
      const value = `call ${++calls}`;
      for (const end = performance.now() + 300; !(await tryLock(redis, 'lock', value, 60_000)); await sleep(10)) {
        if (performance.now() > end) throw new Error('waited in vain');
      }
      try {
        return await work();
      } finally {
        await unlock(redis, 'lock', value);
      }
    };
    const paying = withNaiveLock(() => withNaiveLock(() => 'paid'));
    await expect(paying).rejects.toThrow('waited in vain');
  });

  it('this library lets a nested call enter its own lock at no cost, and releases it at the end of the outer call [G176]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const charge = () => locks.withLock('key', { waitMs: 0 }, (lock) => lock.fencingToken);
    await locks.withLock('key', async (outer) => {
      await server.resetCalls();
      expect(await charge()).toBe(outer.fencingToken);
      expect(await scriptCalls(server)).toBe(0);
      expect(await ownerOn(server, 'key')).toBe(outer.owner);
    });
    expect(await server.keys('lock:{key}')).toEqual([]);
  });

  it('this library with reentrant: false rejects a nested call at once, instead of having it wait for itself [G177]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url, reentrant: false, waitMs: 600_000 });
    const paying = locks.withLock('key', () => locks.withLock('key', () => 'paid'));
    await expect(paying).rejects.toMatchObject({ code: 'LOCK_SELF_DEADLOCK', key: 'key' });
    await expect(paying).rejects.toThrow('would wait for itself');
    expect(await server.keys('lock:{key}')).toEqual([]);
  });
});
