import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { tryLock } from './naive.js';
import { blockEventLoop, clientOf, redisServer } from './stage.js';

const TTL_MS = 300;

describe("H18: the event loop of the holder's process is blocked for twice the ttl", () => {
  it('a naive lock that is ended by a timer is held in the line after, although it is free', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    expect(await tryLock(redis, 'lock', 'A', TTL_MS)).toBe(true);
    let isHeld = true;
    setTimeout(() => (isHeld = false), TTL_MS);
    blockEventLoop(2 * TTL_MS);
    expect(isHeld).toBe(true);
    expect(await server.command('GET', 'lock')).toBeNull();
  });

  it('this library computes it: not held in the first line after [G168]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('key', { ttlMs: TTL_MS });
    blockEventLoop(2 * TTL_MS);
    expect(lock.isHeld).toBe(false);
    expect(lock.remainingMs).toBe(0);
    expect(lock.signal.aborted).toBe(true);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'stalled' }));
  });

  it('this library tells the caller of work that did not ask [G169]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const working = locks.withLock('key', { ttlMs: TTL_MS }, () => {
      blockEventLoop(2 * TTL_MS);
      return 'done';
    });
    await expect(working).rejects.toMatchObject({ reason: 'stalled', outcome: { status: 'fulfilled', value: 'done' } });
  });
});
