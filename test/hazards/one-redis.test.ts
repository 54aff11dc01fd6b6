import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { tryLock, unlock } from '../support/naive.js';
import { openLocks } from '../support/open-locks.js';
import { clientOf, freeOn, proxyTo, redisServer } from '../support/stage.js';
import { counterOn, ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';

describe('H2: every client stores the same value', () => {
  it('a naive lock with a fixed value is deleted by a holder whose lease has ended, and two others hold it at once', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const lock = async (ttlMs: number) => (await redis.set('lock', 'locked', 'PX', ttlMs, 'NX')) === 'OK';
    const unlock = () => redis.del('lock');

    expect(await lock(100)).toBe(true); // A
    await until(() => lock(60_000), { what: "A's lease has ended, and B has the lock" });
    expect(await unlock()).toBe(1); // A is done at last
    expect(await lock(60_000)).toBe(true); // C, while B is still at work
  });

  it("this library releases only the caller's own lock [G149]", async () => {
    const server = await redisServer();
    const [a, b, c] = await Promise.all([1, 2, 3].map(() => openLocks({ redis: server.url })));

    const lockOfA = await a!.acquire('key', { ttlMs: 700, watchdog: false });
    const lockOfB = await b!.acquire('key');
    expect(lockOfB.owner).not.toBe(lockOfA.owner);
    expect(await lockOfA.release()).toBe(false);
    expect(await ownerOn(server, 'key')).toBe(lockOfB.owner);
    expect(await c!.tryAcquire('key')).toBeNull();
    expect(await lockOfB.release()).toBe(true);
  });
});

describe('H3: the release reads its own value, and then deletes', () => {
  it('a naive lock whose release pauses between GET and DEL deletes the lock of the next holder', async () => {
    const server = await redisServer();
    const [a, b, c] = [clientOf(server), clientOf(server), clientOf(server)];

    expect(await tryLock(a, 'lock', 'A', 700)).toBe(true);
    const isMine = (await a.get('lock')) === 'A';
    await until(() => tryLock(b, 'lock', 'B', 60_000), { what: "A's lease has ended, and B has the lock" });
    expect(isMine).toBe(true);
    expect(await a.del('lock')).toBe(1);
    expect(await tryLock(c, 'lock', 'C', 60_000)).toBe(true); // while B is still at work
  });

  it('this library compares and deletes in one step, so that a delayed release removes nothing [G150]', async () => {
    const server = await redisServer();
    const wayOfA = await proxyTo(server);
    const a = await openLocks({ redis: wayOfA.url });
    const b = await openLocks({ redis: server.url });

    const lockOfA = await a.acquire('key', { ttlMs: 800 });
    wayOfA.hold();
    const releasing = lockOfA.release(); // sent while A is the holder
    const lockOfB = await b.acquire('key');
    wayOfA.release();
    expect(await releasing).toBe(false);
    expect(await ownerOn(server, 'key')).toBe(lockOfB.owner);
    expect(await lockOfB.release()).toBe(true);
  });
});

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
    await (await locks.acquire('other')).release(); // the server knows the scripts
    const counter = await counterOn(server);

    server.pause();
    await expect(locks.acquire('key')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    server.resume();
    await until(async () => (await counterOn(server)) > counter, { what: 'the late command has run' });
    await freeOn([server], 'key');
    await until(() => locks.tryAcquire('key').catch(() => null), { what: 'it can be acquired' });
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

const EXTENDED_TTL_MS = 3_000;

describe('H16: everything in Redis is deleted while a lock is held', () => {
  it('a naive lock with a naive token counter refuses the new holder after FLUSHALL, and accepts the old one', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const stock = new FencedStore();
    await redis.set('lock:fence', 41);
    expect(await tryLock(redis, 'lock', 'A', EXTENDED_TTL_MS)).toBe(true);
    const tokenOfA = await redis.incr('lock:fence');
    expect(stock.write('as A counted it', tokenOfA)).toBe(true);

    await server.command('FLUSHALL');
    expect(await tryLock(redis, 'lock', 'B', EXTENDED_TTL_MS)).toBe(true);
    const tokenOfB = await redis.incr('lock:fence');
    expect(stock.write('as B sold it', tokenOfB)).toBe(false);
    expect(stock.write('as A saw it', tokenOfA)).toBe(true);
  });

  it('this library reports the loss to the holder at its next extension after FLUSHALL, and the next token is still greater [G166]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const stock = new FencedStore();
    for (let turn = 0; turn < 40; turn++) await a!.withLock('key', () => {});

    const lockOfA = await a!.acquire('key', { ttlMs: EXTENDED_TTL_MS });
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    const deadline = performance.now() + lockOfA.remainingMs;
    await server.command('FLUSHALL');
    const lockOfB = await b!.acquire('key', { waitMs: 0 });
    expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);

    await until(() => lockOfA.signal.aborted, { what: 'A is notified' });
    expect(lockOfA.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'stolen' }); // found, not timed out
    expect(performance.now()).toBeLessThan(deadline);
    expect(await lockOfB.release()).toBe(true);
  });
});

describe('H17: Redis forgets the scripts', () => {
  it('a naive lock that loaded its script at the start can no longer be released when Redis forgets it', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    const sha = (await redis.script('LOAD', release)) as string;

    expect(await tryLock(redis, 'lock', 'A', 60_000)).toBe(true);
    await server.command('SCRIPT', 'FLUSH');
    await expect(redis.evalsha(sha, 1, 'lock', 'A')).rejects.toThrow('NOSCRIPT');
    expect(await server.command('GET', 'lock')).toBe('A');
  });

  it('this library sends scripts again when Redis forgot them, whatever the operation, one by one and many at once [G167]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const forget = () => server.command('SCRIPT', 'FLUSH');

    const lock = await locks.acquire('key');
    await forget();
    await lock.extend();
    await forget();
    expect(await locks.inspect('key')).toMatchObject({ holder: { owner: lock.owner } });
    await forget();
    expect(await lock.release()).toBe(true);

    const keys = Array.from({ length: 250 }, (_, index) => `key ${index}`);
    await forget();
    const held = await Promise.all(keys.map((key) => locks.acquire(key)));
    await forget();
    await Promise.all(held.map((one) => one.extend()));
    await forget();
    expect(await Promise.all(held.map((one) => one.release()))).toEqual(keys.map(() => true));
    expect(new Set(held.map(({ owner }) => owner)).size).toBe(keys.length);
    expect(await server.keys('lock:{*}')).toEqual([]);
  });
});

const COMMAND_TIMEOUT_MS = 700;

describe('H19: Redis goes away while the work runs', () => {
  it('a naive lock replaces the result or error of the work by the failure of its release', async () => {
    const server = await redisServer();
    const redis = clientOf(server, { maxRetriesPerRequest: 0 });
    const withNaiveLock = async <T>(work: () => Promise<T>): Promise<T> => {
      expect(await tryLock(redis, 'lock', 'A', 60_000)).toBe(true);
      try {
        return await work();
      } finally {
        await unlock(redis, 'lock', 'A');
      }
    };
    const paid = withNaiveLock(async () => {
      await server.kill();
      return 'the card is charged';
    });
    await expect(paid).rejects.toThrow(/max retries|closed/i);
    await server.restart();
    const refused = withNaiveLock(async () => {
      await server.kill();
      throw new Error('the card is refused');
    });
    await expect(refused).rejects.toThrow(/max retries|closed/i);
  });

  it('this library returns the result of the work, or throws its error, when Redis is dead [G170]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url, commandTimeoutMs: COMMAND_TIMEOUT_MS });
    const paid = locks.withLock('key', async () => {
      await server.kill();
      return 'the card is charged';
    });
    expect(await paid).toBe('the card is charged');
    await server.restart();
    await until(() => locks.withLock('another', () => true).catch(() => false), { what: 'Redis is reached again' });
    const refused = locks.withLock('key', async () => {
      await server.kill();
      throw new Error('the card is refused');
    });
    await expect(refused).rejects.toThrow('the card is refused');
  });

  it('this library returns the result while Redis cannot be reached, and releases the lock when it can be [G171]', async () => {
    const server = await redisServer();
    const way = await proxyTo(server);
    const locks = await openLocks({ redis: way.url, commandTimeoutMs: COMMAND_TIMEOUT_MS });
    const paid = locks.withLock('key', { ttlMs: 60_000 }, () => {
      way.hold();
      return 'the card is charged';
    });
    expect(await paid).toBe('the card is charged');
    expect(await server.keys('lock:{key}')).toEqual(['lock:{key}']);
    way.cut(); // the release that was on its way is lost with it
    way.release();
    await freeOn([server], 'key');
  });
});
