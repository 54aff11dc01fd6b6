import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Lock, LockSelfDeadlockError } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const isFree = async (key: string): Promise<boolean> => (await server.keys(`lock:{${key}}`)).length === 0;

/** The lock was lost, and what the work itself expected was so. */
const LOST_BUT_WELL = { code: 'LOCK_LOST', outcome: { status: 'fulfilled' } };

describe('a nested acquisition of a lock that the call holds', () => {
  it('a nested acquisition of a lock costs no Redis call and has the same owner and fencing token [G25]', async () => {
    const locks = await open();
    await locks.withLock('nested', async (outer) => {
      await server.resetCalls();
      await locks.withLock('nested', async (inner) => {
        const acquired = await locks.acquire('nested');
        const tried = await locks.tryAcquire('nested');
        for (const lock of [inner, acquired, tried]) {
          expect(lock).toMatchObject({ owner: outer.owner, fencingToken: outer.fencingToken, isHeld: true });
        }
        await acquired.release();
        await tried?.release();
      });
      expect(await scriptCalls(server)).toBe(0);
    });
  });

  it('is found in whatever the work calls, awaits, and plans', async () => {
    const locks = await open();
    const deep = async (): Promise<number> => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      return locks.withLock('deep', { waitMs: 0 }, (lock) => lock.fencingToken);
    };
    await locks.withLock('deep', async (outer) => {
      const tokens = await Promise.all([deep(), Promise.resolve().then(deep)]);
      expect(tokens).toEqual([outer.fencingToken, outer.fencingToken]);
    });
  });

  it('is released by the last release, in whatever order', async () => {
    const locks = await open();
    let inner!: Lock;
    await locks.withLock('last', async (outer) => {
      inner = await locks.acquire('last');
      expect(await outer.release()).toBe(true);
      expect(outer.isHeld).toBe(false);
      expect(inner.isHeld).toBe(true);
      expect(await isFree('last')).toBe(false);
    });
    expect(inner.isHeld).toBe(true);
    expect(await isFree('last')).toBe(false);
    expect(await inner.release()).toBe(true);
    expect(await isFree('last')).toBe(true);
  });

  it('does not shorten the lock of the calls around it, and makes it longer only until it ends [G1004]', async () => {
    const locks = await openLocks({ redis: server.url, ttlMs: 10_000 });
    await locks.withLock('longest', async (outer) => {
      await locks.withLock('longest', async (inner) => {
        await inner.extend(100);
        expect(outer.remainingMs).toBeGreaterThan(5_000);
        await inner.extend(600_000);
        expect(outer.remainingMs).toBeGreaterThan(500_000);
      });
      await until(() => outer.remainingMs <= 10_000, { what: 'it is as long as before' });
      const inner = await locks.acquire('longest', { ttlMs: 5_000 });
      await outer.extend(100);
      expect(outer.remainingMs).toBeGreaterThan(4_000);
      await inner.release();
    });
  });

  it('counts each handle once, however often it is released', async () => {
    const locks = await open();
    await locks.withLock('once-each', async (outer) => {
      const inner = await locks.acquire('once-each');
      await inner.release();
      await inner.release();
      await inner.release();
      expect(outer.isHeld).toBe(true);
      expect(await isFree('once-each')).toBe(false);
    });
    expect(await isFree('once-each')).toBe(true);
  });

  it('tells every handle when the lock is lost, and their releases say that nothing was removed', async () => {
    const locks = await open();
    const working = locks.withLock('lost', async (outer) => {
      const inner = await locks.acquire('lost');
      await locks.forceRelease('lost');
      expect([outer.isHeld, inner.isHeld, inner.signal.aborted, outer.signal.aborted]).toEqual([
        false,
        false,
        true,
        true,
      ]);
      expect(await inner.release()).toBe(false);
    });
    await expect(working).rejects.toMatchObject(LOST_BUT_WELL);
  });

  it('passes the outcome of its work through when the lock is lost', async () => {
    const locks = await open();
    const working = locks.withLock('lost', () =>
      locks.withLock('lost', async () => {
        await locks.forceRelease('lost');
        return 'done';
      }),
    );
    await expect(working).rejects.toMatchObject({ reason: 'forced', outcome: { status: 'fulfilled', value: 'done' } });
  });

  it('acquires another key as usual', async () => {
    const locks = await open();
    await locks.withLock('outer-key', async (outer) => {
      await locks.withLock('inner-key', async (inner) => {
        expect(inner.owner).not.toBe(outer.owner);
        expect(locks.current()).toMatchObject({ key: 'inner-key' });
        expect(locks.current('outer-key')).toMatchObject({ owner: outer.owner });
        await locks.withLock('outer-key', (again) => expect(again.owner).toBe(outer.owner));
      });
      expect(locks.current()).toMatchObject({ key: 'outer-key' });
    });
  });
});

describe('a nested acquisition with a signal', () => {
  const reason = new Error('of the caller');
  const aborted = AbortSignal.abort(reason);

  it('a nested call whose signal is aborted rejects with the reason and does not run its work, for one key and for several [G506]', async () => {
    const locks = await open();
    let ran = 0;
    const work = () => void ran++;
    await locks.withLock(['a', 'b'], async ({ isHeld }) => {
      await expect(locks.withLock('a', { signal: aborted }, work)).rejects.toBe(reason);
      await expect(locks.acquire('a', { signal: aborted })).rejects.toBe(reason);
      await expect(locks.tryAcquire('a', { signal: aborted })).rejects.toBe(reason);
      await expect(locks.withLock(['a', 'b'], { signal: aborted }, work)).rejects.toBe(reason);
      await expect(locks.tryAcquireAll(['a', 'b'], { signal: aborted })).rejects.toBe(reason);
      const caller = new AbortController();
      const set = locks.withLock(['a', 'b'], { signal: caller.signal }, work);
      caller.abort(reason); // while the set is acquired
      await expect(set).rejects.toBe(reason);
      expect(isHeld).toBe(true);
    });
    expect([ran, await isFree('a'), await isFree('b')]).toEqual([0, true, true]);
  });

  it('a loop of nested calls that are refused by their signal does not stop the event loop', async () => {
    const locks = await open();
    await locks.withLock('a', async () => {
      let hasRun = false;
      setTimeout(() => (hasRun = true), 1);
      while (!hasRun) await locks.acquire('a', { signal: aborted }).catch(() => {});
    });
  });
});

describe('with reentrant: false', () => {
  it('a nested acquisition fails at once, by name of the key, and the outer lock stays', async () => {
    const locks = await open();
    await locks.withLock('self', async (outer) => {
      await server.resetCalls();
      const nested = locks.withLock('self', { reentrant: false, waitMs: 60_000 }, () => {});
      await expect(nested).rejects.toThrow(LockSelfDeadlockError);
      await expect(nested).rejects.toMatchObject({ code: 'LOCK_SELF_DEADLOCK', key: 'self' });
      expect(await scriptCalls(server)).toBe(0);
      expect(outer.isHeld).toBe(true);
    });
    expect(await isFree('self')).toBe(true);
  });

  it('also when the whole service is set so', async () => {
    const locks = await openLocks({ redis: server.url, reentrant: false });
    await locks.withLock('self-all', async () => {
      await expect(locks.acquire('self-all')).rejects.toThrow(LockSelfDeadlockError);
    });
  });
});

describe('other async contexts', () => {
  it('do not share: a call beside waits until the lock is released', async () => {
    const locks = await open();
    const [inside, finish] = [new Gate(), new Gate()];
    const order: string[] = [];
    const first = locks.withLock('beside', async () => {
      inside.open();
      await finish.opened;
      order.push('first ends');
    });
    await inside.opened;
    const second = locks.withLock('beside', () => order.push('second begins'));
    await until(async () => (await locks.inspect('beside'))?.waiters, { what: 'the second call waits' });
    finish.open();
    await Promise.all([first, second]);
    expect(order).toEqual(['first ends', 'second begins']);
  });

  it('that branch off within the work share its lock, and the last to release releases', async () => {
    const locks = await open();
    const finish = new Gate();
    let [running, most] = [0, 0];
    let stragglers!: Promise<unknown>;
    await locks.withLock('branches', async (outer) => {
      const branch = () =>
        locks.withLock('branches', async (lock) => {
          most = Math.max(most, ++running);
          await finish.opened;
          running--;
          return lock.owner === outer.owner && lock.isHeld;
        });
      stragglers = Promise.all([branch(), branch(), branch()]);
    });
    expect(most).toBe(3);
    expect(await isFree('branches')).toBe(false);
    finish.open();
    expect(await stragglers).toEqual([true, true, true]);
    expect(await isFree('branches')).toBe(true);
  });

  it('that begin when the work around them has returned wait for a branch that still has the lock [G1005]', async () => {
    const locks = await open();
    const [returned, finish] = [new Gate(), new Gate()];
    const order: string[] = [];
    let branches!: Promise<unknown>;
    await locks.withLock('late', async () => {
      const early = locks.withLock('late', async (lock) => {
        await finish.opened;
        order.push('early ends');
        return lock.fencingToken;
      });
      const late = returned.opened.then(() =>
        locks.withLock('late', (lock) => {
          order.push('late begins');
          return lock.fencingToken;
        }),
      );
      branches = Promise.all([early, late]);
    });
    returned.open();
    await until(() => locks.stats().some(({ waiting }) => waiting === 1) || order.length > 0, { what: 'it waits' });
    finish.open();
    const [early, late] = (await branches) as [number, number];
    expect(order).toEqual(['early ends', 'late begins']);
    expect(late).toBeGreaterThan(early);
  });

  it('that outlive their released lock acquire anew', async () => {
    const locks = await open();
    const released = new Gate();
    let straggler!: Promise<number>;
    let outerToken = 0;
    await locks.withLock('outlived', async (outer) => {
      outerToken = outer.fencingToken;
      straggler = released.opened.then(() => locks.withLock('outlived', (lock) => lock.fencingToken));
    });
    released.open();
    expect(await straggler).toBeGreaterThan(outerToken);
  });

  it('that outlive their lost lock acquire anew, behind the next holder', async () => {
    const locks = await open();
    const others = await open();
    const working = locks.withLock('lost-and-again', async (outer) => {
      await locks.forceRelease('lost-and-again');
      const other = await others.acquire('lost-and-again');
      await expect(locks.acquire('lost-and-again', { waitMs: 0 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
      await other.release();
      await locks.withLock('lost-and-again', (again) => {
        expect(again.fencingToken).toBeGreaterThan(other.fencingToken);
        expect(again.owner).not.toBe(outer.owner);
      });
    });
    await expect(working).rejects.toMatchObject(LOST_BUT_WELL);
  });

  it('of two services do not mix', async () => {
    const [locks, others] = [await open(), await open()];
    await locks.withLock('two', async () => {
      await expect(others.acquire('two', { waitMs: 0 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
      await expect(others.acquire('two', { waitMs: 0, reentrant: false })).rejects.toMatchObject({
        code: 'LOCK_CONTENDED',
      });
      expect(() => others.current()).toThrow();
    });
  });
});

describe('current', () => {
  it('throws outside of any lock, and names the key that was asked for', async () => {
    const locks = await open();
    expect(() => locks.current()).toThrow(expect.objectContaining({ code: 'LOCK_OPTIONS' }));
    await locks.withLock('some', () => {
      expect(() => locks.current('another')).toThrow('"another"');
    });
    expect(() => locks.current()).toThrow('current() was called outside');
  });

  it('is the lock of the work also after it was lost, to tell by its signal', async () => {
    const locks = await open();
    const working = locks.withLock('current-lost', async () => {
      await locks.forceRelease('current-lost');
      expect(locks.current().isHeld).toBe(false);
      expect(locks.current('current-lost').signal.aborted).toBe(true);
    });
    await expect(working).rejects.toMatchObject(LOST_BUT_WELL);
  });

  it('is the outer handle for a branch that outlives the inner one', async () => {
    const locks = await open();
    const innerReleased = new Gate();
    await locks.withLock('straggler', async () => {
      let straggler!: Promise<Lock>;
      await locks.withLock('straggler', async () => {
        straggler = innerReleased.opened.then(() => locks.current());
      });
      innerReleased.open();
      const lock = await straggler;
      expect(lock.isHeld).toBe(true);
      expect(() => lock.assertHeld()).not.toThrow();
    });
  });

  it('throws in a branch that outlives the lock', async () => {
    const locks = await open();
    const released = new Gate();
    let straggler!: Promise<Lock>;
    await locks.withLock('outlives', async () => {
      straggler = released.opened.then(() => locks.current());
    });
    released.open();
    await expect(straggler).rejects.toMatchObject({
      code: 'LOCK_OPTIONS',
      message: expect.stringMatching(/If it was, that work had already returned: is an await missing\?$/),
    });
  });
});
