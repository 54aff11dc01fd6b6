import { inspect } from 'node:util';
import { expect, it } from 'vitest';
import type { LockContendedError, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { sceneOfFile } from '../support/scene.js';

const { server, open, openBehindProxy } = await sceneOfFile();

it('a lock describes itself without its internals, and inspect says who holds it, since when, for how long, and with which token', async () => {
  const [locks, others] = [await open(), await open({ ttlMs: 20_000 })];
  const from = Date.now();
  const lock = await others.acquire('told', { ttlMs: undefined }); // says nothing
  const { owner, fencingToken } = lock;
  const shown = { key: 'told', mode: 'exclusive', fencingToken, isHeld: true };
  expect(JSON.parse(JSON.stringify(lock))).toEqual({ ...shown, remainingMs: expect.any(Number) as number });
  expect(inspect(lock)).toMatch(/key: 'told'(?!.*engine)/s);
  const info = (await locks.inspect('told'))!;
  expect(info).toMatchObject({ key: 'told', holder: { owner, pid: process.pid }, fencingToken });
  expect(Math.abs(info.remainingMs - 20_000)).toBeLessThan(1_000);
  expect(Math.abs(info.since!.getTime() - from)).toBeLessThan(50);
  await lock.release();
});

it('withLock gives its lock back when the work throws at once, and rejects with what it threw', async () => {
  const locks = await open();
  const thrown = { not: 'even an Error' };
  const work = () => {
    throw thrown;
  };
  await expect(locks.withLock('thrown', work)).rejects.toBe(thrown);
  expect(await locks.isLocked('thrown')).toBe(false);
});

it('inspect, isLocked and forceRelease reject when Redis cannot be asked', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 100 });
  proxy.hold();
  for (const asking of [locks.inspect('k'), locks.isLocked('k'), locks.forceRelease('k')])
    await expect(asking).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'k' });
});

const work = async () => {};
const refusalOf = (call: Promise<unknown>): Promise<LockContendedError> =>
  call.then(
    () => Promise.reject(new Error('it was granted')),
    (error: LockContendedError) => error,
  );

/** Two services that share their locks if there is a server, and one service if there is none. */
const openPair = async (isOnRedis: boolean): Promise<[LockService, LockService]> => {
  const locks = await openLocks(isOnRedis ? { redis: server.url } : { memory: true });
  return [locks, isOnRedis ? await open() : locks];
};

it.each([
  ['in memory', false, 20],
  ['on Redis', true, 0],
])('a refused call names the locks that it holds meanwhile, %s [G370]', async (_, isOnRedis, waitMs) => {
  const [locks, others] = await openPair(isOnRedis);
  const taken = await others.acquire('b');
  const error = await refusalOf(
    locks.withLock('a', async () => {
      await new Promise(setImmediate);
      await locks.withLock('b', { waitMs }, work);
    }),
  );
  expect(error).toMatchObject({ code: 'LOCK_CONTENDED', key: 'b', holding: ['a'] });
  expect(error.message).toMatch(
    / onContended of @Locked\. This call held "a" meanwhile: if the holder of "b" waits for "a", neither can continue; take both at once with acquireAll\.$/,
  );
  const ofPermits = locks.withLock('a', () => locks.withPermits('b', { limit: 2, waitMs }, work));
  await expect(ofPermits).rejects.toThrow(/; take both in the same order everywhere\.$/);
  await taken.release();
});

it('a refused call names none where it holds none, whatever other calls of the process hold [G371]', async () => {
  const [locks] = await openPair(false);
  const [taken, another] = [await locks.acquire('b'), await locks.acquire('a')];
  const error = await refusalOf(locks.withLock('b', { waitMs: 20 }, work));
  expect(error.holding).toEqual([]);
  expect(error.message).toContain(', which is this process (its lease runs for');
  expect(error.message).not.toContain('This call held');
  await Promise.all([taken.release(), another.release()]);
});
