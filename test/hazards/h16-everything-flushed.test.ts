import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';
import { tryLock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';

const TTL_MS = 3_000;

describe('H16: everything in Redis is deleted while a lock is held', () => {
  it('a naive lock with a naive token counter refuses the new holder after FLUSHALL, and accepts the old one', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const stock = new FencedStore();
    await redis.set('lock:fence', 41);
    expect(await tryLock(redis, 'lock', 'A', TTL_MS)).toBe(true);
    const tokenOfA = await redis.incr('lock:fence');
    expect(stock.write('as A counted it', tokenOfA)).toBe(true);

    await server.command('FLUSHALL');
    expect(await tryLock(redis, 'lock', 'B', TTL_MS)).toBe(true);
    const tokenOfB = await redis.incr('lock:fence');
    expect(stock.write('as B sold it', tokenOfB)).toBe(false);
    expect(stock.write('as A saw it', tokenOfA)).toBe(true);
  });

  it('this library tells the holder of the loss at its next extension after FLUSHALL, and the next token is still greater [G166]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const stock = new FencedStore();
    for (let turn = 0; turn < 40; turn++) await a!.withLock('key', () => {});

    const lockOfA = await a!.acquire('key', { ttlMs: TTL_MS });
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    const deadline = performance.now() + lockOfA.remainingMs;
    await server.command('FLUSHALL');
    const lockOfB = await b!.acquire('key', { waitMs: 0 });
    expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);

    await until(() => lockOfA.signal.aborted, { what: 'A is told' });
    expect(lockOfA.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'stolen' }); // found, not timed out
    expect(performance.now()).toBeLessThan(deadline);
    expect(await lockOfB.release()).toBe(true);
  });
});
