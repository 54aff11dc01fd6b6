import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { until } from '../support/until.js';
import { redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

const LONG_TTL_MS = 60_000;
const SERVED_WITHIN_MS = 5_000;

describe('H21: the process that is next in the queue dies', () => {
  it.each([
    ['before the release', 0],
    ['with the release', 1],
  ])('this library soon serves the next waiter when the first one gives up %s [G174]', async (_, whenReleased) => {
    const server = await redisServer();
    const options = { redis: server.url, ttlMs: LONG_TTL_MS, waitMs: LONG_TTL_MS };
    const [holder, first, second] = await Promise.all([1, 2, 3].map(() => openLocks(options)));
    const lock = await holder!.acquire('key');
    const giveUp = new AbortController();
    const given = expect(first!.acquire('key', { signal: giveUp.signal })).rejects.toThrow('enough');
    await untilQueued(server, 'key', 1);
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
