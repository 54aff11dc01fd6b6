import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { tryLock } from '../support/naive.js';
import { clientOf, freeOn, redisServer } from '../support/stage.js';
import { counterOn } from '../support/stored.js';

const GIVE_UP_MS = 600;
const LONG_TTL_MS = 60_000;

describe('H9: a command that was given up runs when Redis returns', () => {
  it('a naive lock command that was given up is run later, and nobody holds the lock that it takes', async () => {
    const server = await redisServer();
    const a = clientOf(server);
    await a.ping();

    server.pause();
    const locking = tryLock(a, 'lock', 'A', LONG_TTL_MS);
    expect(await Promise.race([locking, sleep(GIVE_UP_MS, 'given up')])).toBe('given up');
    server.resume();
    expect(await locking).toBe(true); // nobody waits for this any more
    expect(Number(await server.command('PTTL', 'lock'))).toBeGreaterThan(LONG_TTL_MS / 2);
  });

  it('this library takes back a command that a hanging Redis runs later [G157]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url, commandTimeoutMs: GIVE_UP_MS, ttlMs: LONG_TTL_MS });
    await (await locks.acquire('other')).release(); // the scripts are known to the server
    const counter = await counterOn(server);

    server.pause();
    await expect(locks.acquire('key')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    server.resume();
    await until(async () => (await counterOn(server)) > counter, { what: 'the late command has run' });
    await freeOn([server], 'key');
    await until(() => locks.tryAcquire('key').catch(() => null), { what: 'it can be had' });
  });

  it("this library leaves nothing in the queue of the application's client for a Redis that was down [G158]", async () => {
    const server = await redisServer();
    const client = clientOf(server, { retryStrategy: () => 20 }); // queues commands while it is not connected
    const locks = await openLocks({ redis: client, commandTimeoutMs: GIVE_UP_MS, ttlMs: LONG_TTL_MS });

    await server.kill();
    await expect(locks.acquire('key')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    const queued = client.set('queued behind', 'it');
    await server.restart();
    await queued;
    await freeOn([server], 'key');
    const lock = await locks.acquire('key', { waitMs: 0 });
    expect(await lock.release()).toBe(true);
    expect(await server.keys('lock:{key}')).toEqual([]);
  });
});
