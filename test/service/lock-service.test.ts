import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LockEvent } from 'nest-redis-lock';
import { letVote } from '../support/let-vote.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { ownerOn } from '../support/stored.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const holderInRedis = (key: string): Promise<string | null> => ownerOn(server, key);

describe('acquire', () => {
  it('takes a free lock in one round trip, and gives it back in another', async () => {
    const locks = await open();
    await locks.withLock('scripts-are-loaded', () => {});
    await server.resetCalls();
    const lock = await locks.acquire('trips');
    expect((await server.calls()).evalsha).toBe(1);
    await lock.release();
    expect((await server.calls()).evalsha).toBe(2);
  });
});

describe('tryAcquire', () => {
  it('returns null when another process holds it, after exactly one attempt', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('taken');
    await server.resetCalls();
    expect(await locks.tryAcquire('taken')).toBeNull();
    expect((await server.calls()).evalsha).toBe(1);
  });

  it('returns null when this process holds it, and asks Redis nothing', async () => {
    const locks = await open();
    const lock = await locks.acquire('taken-here');
    await server.resetCalls();
    expect(await locks.tryAcquire('taken-here')).toBeNull();
    expect(await server.calls()).not.toHaveProperty('evalsha');
    await lock.release();
  });

  it('waits for what the attempt under way finds: one of several calls has the lock, the others null', async () => {
    const locks = await open();
    const held = await Promise.all([1, 2, 3].map(() => locks.tryAcquire('at-once')));
    expect(held.map((lock) => lock?.isHeld)).toEqual([true, undefined, undefined]);
    await held[0]!.release();
    expect(locks.size).toBe(0);
  });

  it('rejects in each of several calls when Redis does not answer: nobody is known to hold the lock', async () => {
    const own = await RedisServer.start();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 100 });
    own.pause();
    const calls = await Promise.allSettled([1, 2, 3].map(() => locks.tryAcquire('unknown')));
    const unavailable = { status: 'rejected', reason: expect.objectContaining({ code: 'LOCK_UNAVAILABLE' }) };
    expect(calls).toEqual([unavailable, unavailable, unavailable]);
    await own.stop();
  });
});

describe('withLock', () => {
  it('returns what the work returned, sync or async, and gives the lock back', async () => {
    const locks = await open();
    expect(await locks.withLock('sync', () => 1)).toBe(1);
    expect(await locks.withLock('async', { ttlMs: 5_000 }, async () => 2)).toBe(2);
    expect(await server.keys('lock:{*sync}')).toEqual([]);
  });

  it('throws what the work threw, sync or async, and gives the lock back', async () => {
    const locks = await open();
    const thrown = { not: 'even an Error' };
    const throwSync = (): never => {
      throw thrown;
    };
    await expect(locks.withLock('throws', throwSync)).rejects.toBe(thrown);
    await expect(locks.withLock('throws', () => Promise.reject(new Error('async')))).rejects.toThrow('async');
    expect(await holderInRedis('throws')).toBeNull();
  });

  it('says where its work belongs', async () => {
    const locks = await open();
    const swapped = locks.withLock('key', (async () => {}) as never, { ttlMs: 1_000 } as never);
    await expect(swapped).rejects.toThrow(
      'withLock(key, options, work) needs a function as its last argument: got object.',
    );
  });

  it('does not run the work when the lock is not to be had', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('not-run');
    let ran = false;
    const working = locks.withLock('not-run', { waitMs: 0 }, () => (ran = true));
    await expect(working).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    expect(ran).toBe(false);
  });

  it('leaves the lock released when the work released it, and does not count that as a loss', async () => {
    const locks = await open();
    expect(await locks.withLock('early', async (lock) => [await lock.release(), 'value'])).toEqual([true, 'value']);
  });
});

describe('inspect and isLocked', () => {
  it('tell the bare owner value of a key that another program wrote', async () => {
    const locks = await open();
    await server.command('SET', 'lock:{foreign}', 'a shell script', 'PX', 10_000);
    expect(await locks.inspect('foreign')).toMatchObject({ holder: { owner: 'a shell script' } });
    expect((await locks.inspect('foreign'))?.holder).not.toHaveProperty('pid');
  });

  it('reject when Redis cannot be asked', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 100 });
    proxy.hold();
    await expect(locks.inspect('unknown')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await expect(locks.isLocked('unknown')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await expect(locks.forceRelease('unknown')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await proxy.stop();
  });
});

describe('forceRelease', () => {
  it('tells a holder in this process at once, and lets the next one in', async () => {
    const locks = await open();
    const lock = await locks.acquire('forced-here');
    const { signal } = lock;
    const next = locks.acquire('forced-here');
    expect(await locks.forceRelease('forced-here')).toBe(true);
    expect(signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'forced' });
    expect((await next).fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('leaves alone who got the lock in this process before the last node of a Redlock had answered', async () => {
    const servers = await letVote(await Promise.all([1, 2, 3].map(() => RedisServer.start())));
    const proxy = await TcpProxy.start(servers[2]!.port);
    const redlock = [servers[0]!.url, servers[1]!.url, proxy.url];
    const locks = await openLocks({ redlock, commandTimeoutMs: 5_000 });
    const lock = await locks.acquire('handed-on');
    proxy.hold();
    const forced = locks.forceRelease('handed-on');
    await lock.release();
    const next = await locks.acquire('handed-on');
    proxy.release();
    expect(await forced).toBe(true);
    expect(next.isHeld).toBe(true);
    expect(await next.release()).toBe(true);
    await locks.onApplicationShutdown();
    await Promise.all([proxy.stop(), ...servers.map((each) => each.stop())]);
  });
});

describe('events$', () => {
  it('tells of each lock that was acquired, released, contended, lost and unavailable; completes at the end', async () => {
    const proxy = await TcpProxy.start(server.port);
    const [locks, others] = [await openLocks({ redis: proxy.url, commandTimeoutMs: 500 }), await open()];
    const events: LockEvent[] = [];
    let completed = false;
    locks.events$.subscribe({ next: (event) => events.push(event), complete: () => (completed = true) });

    const lock = await locks.acquire('told');
    const { key, owner, fencingToken } = lock;
    await lock.release();
    expect(events.splice(0)).toEqual([
      { type: 'acquired', key, label: '_key', owner, fencingToken, waitedMs: expect.any(Number), grant: 'free' },
      { type: 'released', key, label: '_key', owner, fencingToken, heldMs: expect.any(Number) },
    ]);

    const other = await others.acquire('told');
    await locks.tryAcquire('told');
    const holder = expect.objectContaining({ owner: other.owner });
    expect(events.splice(0)).toEqual([{ type: 'contended', key, label: '_key', waitedMs: expect.any(Number), holder }]);

    const lost = await locks.acquire('told-lost');
    await server.command('DEL', 'lock:{told-lost}');
    await lost.release();
    expect(events.splice(0).slice(1)).toEqual([
      {
        type: 'lost',
        reason: 'expired',
        key: 'told-lost',
        label: '_key',
        owner: lost.owner,
        fencingToken: lost.fencingToken,
        heldMs: expect.any(Number),
      },
    ]);

    proxy.hold();
    await expect(locks.acquire('told')).rejects.toThrow();
    expect(events.splice(0)).toEqual([
      { type: 'unavailable', key, label: '_key', waitedMs: expect.any(Number), causes: [expect.any(Error)] },
    ]);

    await locks.onApplicationShutdown();
    expect(completed).toBe(true);
    await proxy.stop();
  });

  it('tells of waiting in whole milliseconds, as inspect does of the lease', async () => {
    const locks = await openLocks({ memory: true }); // whose clock has fractions
    const waits: number[] = [];
    locks.events$.subscribe((event) => {
      if ('waitedMs' in event) waits.push(event.waitedMs);
    });
    const lock = await locks.acquire('whole');
    await locks.tryAcquire('whole');
    const info = await locks.inspect('whole');
    await lock.release();
    expect(waits).toHaveLength(2);
    expect([...waits, info!.remainingMs].every(Number.isInteger)).toBe(true);
  });

  it('tells of a release that was not confirmed, which is then repeated', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 400 });
    const events: LockEvent['type'][] = [];
    const lock = await locks.acquire('repeated');
    locks.events$.subscribe(({ type }) => events.push(type));
    proxy.hold();
    expect(await lock.release()).toBe(false);
    expect(events).toEqual(['release-failed']);
    proxy.release();
    await until(async () => (await holderInRedis('repeated')) === null, { what: 'the release was repeated' });
    await proxy.stop();
  });
});
