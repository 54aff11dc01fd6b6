import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LockContendedError, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const work = async () => {};
const refusalOf = (call: Promise<unknown>): Promise<LockContendedError> =>
  call.then(
    () => Promise.reject(new Error('it was granted')),
    (error: LockContendedError) => error,
  );

/** Two services that share their locks where there is a server, and one where there is none. */
const openPair = async (isOnRedis: boolean): Promise<[LockService, LockService]> => {
  const locks = await openLocks(isOnRedis ? { redis: server.url } : { memory: true });
  return [locks, isOnRedis ? await openLocks({ redis: server.url }) : locks];
};

describe('a refused call that holds other locks', () => {
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
    await taken.release();
  });

  it('a refused call names none where it holds none, whatever other calls of the process hold [G371]', async () => {
    const [locks] = await openPair(false);
    const [taken, another] = [await locks.acquire('b'), await locks.acquire('a')];
    const error = await refusalOf(locks.withLock('b', { waitMs: 20 }, work));
    expect(error.holding).toEqual([]);
    expect(error.message).not.toContain('This call held');
    await Promise.all([taken.release(), another.release()]);
  });
});
