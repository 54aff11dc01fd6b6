import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { tryLock } from '../support/naive.js';
import { clientOf, proxyTo, redisServer } from '../support/stage.js';
import { counterOn, ownerOn } from '../support/stored.js';

describe('H8: the command ran, and its reply is lost', () => {
  it("a naive lock whose reply was lost is sent again by its client, which takes its own lock for another's", async () => {
    const server = await redisServer();
    const way = await proxyTo(server);
    const a = clientOf(way);
    await a.ping();

    const cut = way.cutAfterRequest('NX');
    expect(await tryLock(a, 'lock', 'A', 60_000)).toBe(false); // so it does not release it, either
    await cut;
    expect(await server.command('GET', 'lock')).toBe('A');
    expect(Number(await server.command('PTTL', 'lock'))).toBeGreaterThan(30_000);
  });

  it('this library finds its own value when the reply was lost: it holds the lock with one token, and leaves nothing behind [G156]', async () => {
    const server = await redisServer();
    const way = await proxyTo(server);
    const locks = await openLocks({ redis: way.url, commandTimeoutMs: 10_000 });
    await locks.withLock('scripts are loaded', () => {});

    const cut = way.cutAfterRequest('lock:{key}');
    const lock = await locks.acquire('key', { ttlMs: 60_000, waitMs: 0 });
    await cut;
    expect(lock.isHeld).toBe(true);
    expect(await ownerOn(server, 'key')).toBe(lock.owner);
    expect(await counterOn(server)).toBe(lock.fencingToken);
    expect(await lock.release()).toBe(true);
    expect(await server.keys('lock:{key}')).toEqual([]);
  });
});
