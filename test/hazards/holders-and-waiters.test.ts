import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { tryLock, unlock } from '../support/naive.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { scriptCalls } from '../support/script-calls.js';
import { blockEventLoop, clientOf, freeOn, proxyTo, redisServer, redisServers } from '../support/stage.js';
import { ownerOn, votedOn } from '../support/stored.js';
import { until } from '../support/until.js';

const TTL_MS = 400;

/** All requests have been written to the sockets. */
const sent = () => new Promise(setImmediate);

describe('H7: the client is paused while it acquires, and reads the answers after the ttl', () => {
  it('a naive lock counts its lease from the answer, so that a client that was paused while acquiring holds the lock of another', async () => {
    const server = await redisServer();
    const [a, b] = [clientOf(server), clientOf(server)];
    await Promise.all([a.ping(), b.ping()]);

    const ttlMs = 1_000;
    const locking = tryLock(a, 'lock', 'A', ttlMs);
    await sent();
    blockEventLoop(ttlMs + 300);
    expect(await locking).toBe(true);
    const heldUntil = performance.now() + ttlMs;
    await until(() => tryLock(b, 'lock', 'B', ttlMs), { what: 'B has it' }); // at once, unless Redis was paused, too
    expect(performance.now()).toBeLessThan(heldUntil);
  });

  it('this library refuses a lock whose answers are read after the ttl, and undoes it on every node [G155]', async () => {
    const nodes = await redisServers(3);
    const slowWay = await proxyTo(nodes[2]!);
    const redlock = [nodes[0]!.url, nodes[1]!.url, slowWay.url];
    const locks = await openLocks({ redlock, commandTimeoutMs: 10_000 });
    await locks.withLock('scripts are loaded', () => {});
    await votedOn(nodes, 'scripts are loaded');
    await freeOn(nodes, 'scripts are loaded');
    await Promise.all(nodes.map((node) => node.resetCalls()));

    slowWay.hold();
    const acquiring = locks.acquire('key', { ttlMs: TTL_MS, waitMs: 0 });
    const refused = expect(acquiring).rejects.toThrow(/its answer took \d+ ms, but the lease is only 400 ms long/);
    await sent();
    blockEventLoop(2 * TTL_MS);
    await refused;

    // The third vote is granted now, with all of its ttl before it.
    slowWay.release();
    await until(async () => (await nodes[2]!.calls()).del === 1, { what: 'the late vote is taken back' });
    await freeOn(nodes, 'key');
    await until(() => locks.tryAcquire('key'), { what: 'it can be acquired' });
  });
});

const BLOCKED_TTL_MS = 500;

describe("H18: the event loop of the holder's process is blocked for twice the ttl", () => {
  it('a naive lock that a timer ends still counts as held in the first line after a blocked event loop, although it is free', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    expect(await tryLock(redis, 'lock', 'A', BLOCKED_TTL_MS)).toBe(true);
    let isHeld = true;
    setTimeout(() => (isHeld = false), BLOCKED_TTL_MS);
    blockEventLoop(2 * BLOCKED_TTL_MS);
    expect(isHeld).toBe(true);
    expect(await server.command('GET', 'lock')).toBeNull();
  });

  it('this library computes whether a lock is held: it is not, in the first line after a blocked event loop [G168]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('key', { ttlMs: BLOCKED_TTL_MS });
    blockEventLoop(2 * BLOCKED_TTL_MS);
    expect(lock.isHeld).toBe(false);
    expect(lock.remainingMs).toBe(0);
    expect(lock.signal.aborted).toBe(true);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'stalled' }));
  });

  it('this library rejects the call of work that blocked the event loop and did not ask whether it still holds the lock [G169]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const working = locks.withLock('key', { ttlMs: BLOCKED_TTL_MS }, () => {
      blockEventLoop(2 * BLOCKED_TTL_MS);
      return 'done';
    });
    await expect(working).rejects.toMatchObject({ reason: 'stalled', outcome: { status: 'fulfilled', value: 'done' } });
  });
});

describe('H20: many wait for one lock', () => {
  it('a naive lock that wakes all waiters costs as many commands for one release as there are waiters', async () => {
    const server = await redisServer();
    const [redis, bell] = [clientOf(server), clientOf(server)];
    expect(await tryLock(redis, 'lock', 'holder', 60_000)).toBe(true);
    await bell.subscribe('released');
    let served = 0;
    const wait = (waiter: number) =>
      bell.on('message', () => void tryLock(redis, 'lock', `waiter ${waiter}`, 60_000).then((got) => got && served++));
    bell.setMaxListeners(0);
    for (let waiter = 0; waiter < 1_000; waiter++) wait(waiter);

    await server.resetCalls();
    await unlock(redis, 'lock', 'holder');
    await redis.publish('released', '');
    await until(() => served === 1, { what: 'one of them has it' });
    await redis.ping(); // behind all their attempts
    expect((await server.calls()).set).toBe(1_000);
  });

  it('this library costs about two commands a turn, however many calls wait, and serves them all, each service in its order [G172]', async () => {
    const server = await redisServer();
    const options = { redis: server.url, waitMs: 60_000 };
    const holder = await openLocks(options);
    // Redis cannot distinguish several services of one process from services of several processes.
    const services = await Promise.all([1, 2, 3].map(() => openLocks(options)));
    const lock = await holder.acquire('key');

    let inside = 0;
    const served: number[][] = [[], [], []];
    const waitAndWork = async (service: number, waiter: number) => {
      const got = await services[service]!.acquire('key');
      expect(++inside).toBe(1);
      served[service]!.push(waiter);
      await server.command('PING'); // while another one would enter
      inside--;
      expect(await got.release()).toBe(true);
    };
    const counts = [500, 250, 250];
    const waits = counts.flatMap((count, service) =>
      Array.from({ length: count }, (_, waiter) => waitAndWork(service, waiter)),
    );
    await untilQueued(server, 'key', services.length);

    await server.resetCalls();
    await lock.release();
    await Promise.all(waits);
    expect(served).toEqual(counts.map((count) => Array.from({ length: count }, (_, waiter) => waiter)));
    expect((await scriptCalls(server)) / 1_000).toBeLessThan(2.5);
  });
});

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

describe('H23: work under a lock calls other work under the same lock', () => {
  it('a naive lock that is acquired again under itself waits for itself until it gives up', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    let calls = 0;
    const withNaiveLock = async <T>(work: () => T | Promise<T>): Promise<T> => {
      const value = `call ${++calls}`;
      for (const end = performance.now() + 300; !(await tryLock(redis, 'lock', value, 60_000)); await sleep(10)) {
        if (performance.now() > end) throw new Error('waited without success');
      }
      try {
        return await work();
      } finally {
        await unlock(redis, 'lock', value);
      }
    };
    const paying = withNaiveLock(() => withNaiveLock(() => 'paid'));
    await expect(paying).rejects.toThrow('waited without success');
  });

  it('this library lets a nested call enter its own lock at no cost, and releases it at the end of the outer call [G176]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const charge = () => locks.withLock('key', { waitMs: 0 }, (lock) => lock.fencingToken);
    await locks.withLock('key', async (outer) => {
      await server.resetCalls();
      expect(await charge()).toBe(outer.fencingToken);
      expect(await scriptCalls(server)).toBe(0);
      expect(await ownerOn(server, 'key')).toBe(outer.owner);
    });
    expect(await server.keys('lock:{key}')).toEqual([]);
  });

  it('this library with reentrant: false rejects a nested call at once, instead of having it wait for itself [G177]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url, reentrant: false, waitMs: 600_000 });
    const paying = locks.withLock('key', () => locks.withLock('key', () => 'paid'));
    await expect(paying).rejects.toMatchObject({ code: 'LOCK_SELF_DEADLOCK', key: 'key' });
    await expect(paying).rejects.toThrow('would wait for itself');
    expect(await server.keys('lock:{key}')).toEqual([]);
  });
});
