import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { tryLock } from '../support/naive.js';
import { blockEventLoop, clientOf, redisServer } from '../support/stage.js';

const TTL_MS = 500;

describe("H18: the event loop of the holder's process is blocked for twice the ttl", () => {
  it('a naive lock that a timer ends still counts as held in the first line after a blocked event loop, although it is free', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    expect(await tryLock(redis, 'lock', 'A', TTL_MS)).toBe(true);
    let isHeld = true;
    setTimeout(() => (isHeld = false), TTL_MS);
    blockEventLoop(2 * TTL_MS);
    expect(isHeld).toBe(true);
    expect(await server.command('GET', 'lock')).toBeNull();
  });

  it('this library computes whether a lock is held: it is not, in the first line after a blocked event loop [G168]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('key', { ttlMs: TTL_MS });
    blockEventLoop(2 * TTL_MS);
    expect(lock.isHeld).toBe(false);
    expect(lock.remainingMs).toBe(0);
    expect(lock.signal.aborted).toBe(true);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'stalled' }));
  });

  it('this library rejects the call of work that blocked the event loop and did not ask whether it still holds the lock [G169]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const working = locks.withLock('key', { ttlMs: TTL_MS }, () => {
      blockEventLoop(2 * TTL_MS);
      return 'done';
    });
    await expect(working).rejects.toMatchObject({ reason: 'stalled', outcome: { status: 'fulfilled', value: 'done' } });
  });
});
