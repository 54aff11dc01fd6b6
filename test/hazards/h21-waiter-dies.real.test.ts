import { describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { clientOf, NaiveProcess, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

const LONG_TTL_MS = 60_000;
/** What was granted to a process that is gone is taken back after 2 s: any time that is far below the ttl tells. */
const SERVED_WITHIN_MS = 30_000;

describe('H21: the process that is next in the queue dies', () => {
  it('a naive queue hands the lock to a dead waiter, and those behind it wait for the whole ttl', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    await redis.set('lock', 'holder', 'PX', LONG_TTL_MS);
    const first = NaiveProcess.start(server, `await redis.rpush('queue', 'first'); say('waits');`);
    await first.says('waits');
    await redis.rpush('queue', 'second');

    await first.kill();
    await redis.set('lock', (await redis.lpop('queue'))!, 'PX', LONG_TTL_MS); // the holder hands over
    expect(await redis.get('lock')).toBe('first');
    expect(await redis.pttl('lock')).toBeGreaterThan(LONG_TTL_MS - SERVED_WITHIN_MS);
    expect(await redis.lrange('queue', 0, -1)).toEqual(['second']);
  });

  it.each([
    ['is killed', (waiter: LockProcess) => waiter.kill()],
    ['is stopped', (waiter: LockProcess) => waiter.pause()],
  ])('this library soon serves the next waiter when the first one %s [G173]', async (_, end) => {
    const server = await redisServer();
    const options = { redis: server.url, ttlMs: LONG_TTL_MS, waitMs: LONG_TTL_MS };
    const [holder, second] = [await openLocks(options), await openLocks(options)];
    const first = await LockProcess.start(options);
    const lock = await holder.acquire('key');
    void first.acquire('key');
    await untilQueued(server, 'key', 1);
    const waiting = second.acquire('key', { waitMs: SERVED_WITHIN_MS });
    await end(first);
    await lock.release();
    const next = await waiting;
    expect(await ownerOn(server, 'key')).toBe(next.owner);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await next.release()).toBe(true);
  });
});
