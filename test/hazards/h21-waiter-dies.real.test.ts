import { describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { clientOf, NaiveProcess, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

const LONG_TTL_MS = 60_000;
/** What was granted to a process that is gone is taken back after 2 s; the rest is for a busy machine. */
const SERVED_WITHIN_MS = 5_000;

/** Whoever was asked to wait has asked Redis, and so stands before all who come later. */
async function asks(server: RedisServer, wait: () => unknown): Promise<void> {
  await server.resetCalls();
  wait();
  await until(async () => (await scriptCalls(server)) > 0, { what: 'it waits' });
}

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
    await asks(server, () => first.acquire('key'));
    const waiting = second.acquire('key', { waitMs: SERVED_WITHIN_MS });
    await end(first);
    await lock.release();
    const next = await waiting;
    expect(await ownerOn(server, 'key')).toBe(next.owner);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await next.release()).toBe(true);
  });

  it.each([
    ['before the release', 0],
    ['with the release', 1],
  ])('this library soon serves the next waiter when the first one gives up %s [G174]', async (_, whenReleased) => {
    const server = await redisServer();
    const options = { redis: server.url, ttlMs: LONG_TTL_MS, waitMs: LONG_TTL_MS };
    const [holder, first, second] = await Promise.all([1, 2, 3].map(() => openLocks(options)));
    const lock = await holder!.acquire('key');
    const giveUp = new AbortController();
    let given: Promise<void> | undefined;
    await asks(server, () => {
      given = expect(first!.acquire('key', { signal: giveUp.signal })).rejects.toThrow('enough');
    });
    const waiting = second!.acquire('key', { waitMs: SERVED_WITHIN_MS });
    const releasing = whenReleased ? lock.release() : undefined;
    giveUp.abort(new Error('enough'));
    await given;
    await (releasing ?? lock.release());
    const next = await waiting;
    expect(await ownerOn(server, 'key')).toBe(next.owner);
    expect(await next.release()).toBe(true);
    await until(() => first!.size === 0, { what: 'nothing of the first is left' });
  });
});
