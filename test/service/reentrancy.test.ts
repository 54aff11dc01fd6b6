import { describe, expect, it } from 'vitest';
import { Gate } from '../support/gate.js';
import { scriptCalls } from '../support/script-calls.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, isFree } = await sceneOfFile();

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

  it('is released by the last release, in any order, and each handle counts once', async () => {
    const locks = await open();
    const [inner, another] = await locks.withLock('last', async (outer) => {
      const handles = [await locks.acquire('last'), await locks.acquire('last')] as const;
      for (const _ of [1, 2, 3]) expect(await outer.release()).toBe(true);
      expect([outer.isHeld, handles[0].isHeld]).toEqual([false, true]);
      return handles;
    });
    await another.release();
    await another.release();
    expect([inner.isHeld, await isFree('last')]).toEqual([true, false]);
    expect(await inner.release()).toBe(true);
    expect(await isFree('last')).toBe(true);
  });

  it('is lost with all its handles, and the outcome of its work is passed through', async () => {
    const locks = await open();
    const working = locks.withLock('lost', async (outer) => {
      const result = locks.withLock('lost', async (inner) => {
        await locks.forceRelease('lost');
        expect([outer, inner].map(({ isHeld, signal }) => [isHeld, signal.aborted])).toEqual(
          Array(2).fill([false, true]),
        );
        expect(await inner.release()).toBe(false);
        expect(locks.current('lost').signal.aborted).toBe(true);
        return 'done';
      });
      await expect(result).rejects.toMatchObject({ reason: 'forced', outcome: { value: 'done' } });
      // Work that continues after the loss acquires again.
      await locks.withLock('lost', (again) => expect(again.fencingToken).toBeGreaterThan(outer.fencingToken));
    });
    await expect(working).rejects.toMatchObject({ code: 'LOCK_LOST', outcome: { status: 'fulfilled' } });
  });

  it('does not shorten the lock of the calls around it, and makes it longer only until it ends [G1004]', async () => {
    const locks = await open({ ttlMs: 10_000 });
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
      const [, extending] = [outer.extend(10_000), inner.extend(600_000)];
      await inner.release(); // before its extension is sent
      await extending;
      await locks.acquire('longest', { ttlMs: 60_000 });
      await outer.extend();
      expect(outer.remainingMs).toBeLessThanOrEqual(10_000);
    });
  });
});

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

it('other async contexts that begin when the work around them has returned wait for a branch that still has the lock [G1005]', async () => {
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

describe('current', () => {
  it('is the innermost lock, or the lock of the key, also for a branch that outlives the inner one', async () => {
    const locks = await open();
    const innerReleased = new Gate();
    let late!: Promise<boolean>;
    await locks.withLock('outer', async (outer) => {
      let straggler!: Promise<{ owner: string }>;
      await locks.withLock('inner', async () => {
        expect(locks.current()).toMatchObject({ key: 'inner' });
        expect(locks.current('outer').owner).toBe(outer.owner);
        expect(() => locks.current('another')).toThrow('"another"');
        straggler = innerReleased.opened.then(() => locks.current());
      });
      innerReleased.open();
      expect((await straggler).owner).toBe(outer.owner);
      late = new Promise((resolve) => setTimeout(resolve, 100)).then(() => locks.current().isHeld);
    });
    const code = 'LOCK_OPTIONS';
    const missing = expect.stringMatching(
      /If it was called there, the work had already returned: is an await missing\?$/,
    ) as string;
    await expect(late).rejects.toMatchObject({ code, message: missing });
    expect(() => locks.current()).toThrow('current() was called outside');
  });

  it('is not the lock of another service, which the lock excludes', async () => {
    const [locks, others] = [await open(), await open()];
    await locks.withLock('two', async () => {
      for (const options of [{ waitMs: 0 }, { waitMs: 0, reentrant: false }])
        await expect(others.acquire('two', options)).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
      expect(() => others.current()).toThrow('outside');
    });
  });
});
