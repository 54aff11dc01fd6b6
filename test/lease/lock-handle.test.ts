import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LockLostError, LockOptionsError } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { counterOn, ownerOn } from '../support/stored.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const ttlInRedis = (key: string): Promise<number> => server.command('PTTL', `lock:{${key}}`) as Promise<number>;
const holderInRedis = (key: string): Promise<string | null> => ownerOn(server, key);

describe('a lock', () => {
  it('tells its key, owner, fencing token, remaining time, and that it is held', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('told', { ttlMs: 10_000 });
    expect(lock.key).toBe('told');
    expect(lock.owner).toBe(await holderInRedis('told'));
    expect(lock.fencingToken).toBe(await counterOn(server));
    expect(Number.isSafeInteger(lock.fencingToken)).toBe(true);
    expect(lock.isHeld).toBe(true);
    expect(lock.signal.aborted).toBe(false);
    expect(() => lock.assertHeld()).not.toThrow();
    expect(lock.remainingMs).toBeGreaterThan(0);
    expect(lock.remainingMs).toBeLessThanOrEqual(10_000 - 102);
  });

  it('counts on less time than Redis gives it: 1 % + 2 ms for drift, and marginMs', async () => {
    const locks = await openLocks({ redis: server.url, marginMs: 1_000 });
    const lock = await locks.acquire('guarded', { ttlMs: 10_000 });
    // In this order: the time between the two can only make the difference larger.
    const inRedis = await ttlInRedis('guarded');
    expect(lock.remainingMs).toBeLessThanOrEqual(inRedis - 1_102 + 1);
    expect(lock.remainingMs).toBeGreaterThan(5_000);
  });

  it('is logged and sent as what it is, not as how it is kept', async () => {
    const locks = await openLocks({ memory: true });
    const lock = await locks.acquire('shown', { ttlMs: 10_000 });
    const shown = {
      key: 'shown',
      mode: 'exclusive',
      fencingToken: lock.fencingToken,
      isHeld: true,
      remainingMs: expect.any(Number),
    };
    expect(JSON.parse(JSON.stringify(lock))).toEqual(shown);
    expect(inspect(lock)).toContain("key: 'shown'");
    expect(inspect(lock)).not.toContain('claim');
  });

  it('that was lost says so also after it was given back', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('lost-then-released');
    await locks.forceRelease('lost-then-released');
    expect(await lock.release()).toBe(false);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'forced' }));
  });

  it('is given back by release, once: further calls do nothing', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('released');
    expect(await lock.release()).toBe(true);
    expect(await holderInRedis('released')).toBeNull();
    const next = await locks.acquire('released');
    expect(await lock.release()).toBe(true);
    expect(await holderInRedis('released')).toBe(next.owner);
  });

  it('is not held from the moment release is called, and its signal does not abort', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('at-once');
    const { signal } = lock;
    const releasing = lock.release();
    expect(lock.isHeld).toBe(false);
    expect(lock.remainingMs).toBe(0);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'released' }));
    await releasing;
    expect(signal.aborted).toBe(false);
  });

  it('is given back at the end of an `await using` block, also when the block throws', async () => {
    const locks = await openLocks({ redis: server.url });
    let inside: unknown;
    const block = async () => {
      await using lock = await locks.acquire('using');
      inside = (await holderInRedis('using')) === lock.owner;
      throw new Error('from the block');
    };
    await expect(block()).rejects.toThrow('from the block');
    expect(inside).toBe(true);
    expect(await holderInRedis('using')).toBeNull();
  });

  it('resolves its release with false when Redis cannot be asked, and never rejects', async () => {
    const own = await RedisServer.start();
    const locks = await openLocks({ redis: own.url });
    const lock = await locks.acquire('unreachable');
    await own.kill();
    expect(await lock.release()).toBe(false);
    await own.stop();
  });
});

describe('extend', () => {
  it('starts the ttl anew', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false });
    const lock = await locks.acquire('anew', { ttlMs: 10_000 });
    await server.command('PEXPIRE', 'lock:{anew}', 5_000);
    await lock.extend();
    expect(await ttlInRedis('anew')).toBeGreaterThan(8_000);
  });

  it('lengthens the lease, here and in Redis', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('longer', { ttlMs: 1_000 });
    await lock.extend(60_000);
    expect(await ttlInRedis('longer')).toBeGreaterThan(50_000);
    expect(lock.remainingMs).toBeGreaterThan(50_000);
  });

  it('shortens the lease, here and in Redis', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false });
    const lock = await locks.acquire('shorter', { ttlMs: 60_000 });
    await lock.extend(500);
    expect(await ttlInRedis('shorter')).toBeLessThanOrEqual(500);
    expect(lock.remainingMs).toBeLessThanOrEqual(500);
    await until(() => lock.signal.aborted, { what: 'the shortened lease has ended' });
  });

  it('sets the ttl that the watchdog keeps to from then on', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('kept', { ttlMs: 60_000 });
    await lock.extend(1_500);
    const extended = async () => (await ttlInRedis('kept')) <= 1_500 && lock.isHeld;
    await server.command('PEXPIRE', 'lock:{kept}', 60_000);
    await until(extended, { what: 'the watchdog has extended the lease by its new ttl' });
    await lock.extend(60_000);
    expect(lock.isHeld).toBe(true);
  });

  it('an extension counts from when it was sent: the time that the reply took is gone from the lease [G5]', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 5_000 });
    const lock = await locks.acquire('slow');
    proxy.hold();
    const extending = lock.extend(20_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    proxy.release();
    await extending;
    expect(lock.remainingMs).toBeLessThanOrEqual(20_000 - 202 - 300 + 5);
    expect(lock.remainingMs).toBeGreaterThan(10_000);
    await lock.release();
    await proxy.stop();
  });

  it('an extension mints no new fencing token [G26]', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('token');
    await lock.extend();
    expect(await counterOn(server)).toBe(lock.fencingToken);
  });

  it('serves several calls at once in their order: the last one counts', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false });
    const lock = await locks.acquire('several');
    await Promise.all([lock.extend(50_000), lock.extend(5_000), lock.extend(90_000)]);
    expect(await ttlInRedis('several')).toBeGreaterThan(80_000);
    expect(lock.remainingMs).toBeGreaterThan(80_000);
  });

  it('rejects after the release', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('over');
    await lock.release();
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'released' });
  });

  it('rejects and tells the loss when the key is gone, and does not bring it back', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('gone');
    const { signal } = lock;
    await server.command('DEL', 'lock:{gone}');
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(await holderInRedis('gone')).toBeNull();
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
  });

  it('rejects and tells the loss when another owner has the key, whose ttl stays', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('anothers');
    await server.command('SET', 'lock:{anothers}', 'thief', 'PX', 5_000);
    await expect(lock.extend(60_000)).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'stolen' });
    expect(lock.isHeld).toBe(false);
    expect(await ttlInRedis('anothers')).toBeLessThanOrEqual(5_000);
  });

  it('refuses a ttl that no lock may have, and the lock is held as before', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('refused');
    await expect(lock.extend(19)).rejects.toBeInstanceOf(LockOptionsError);
    expect(lock.isHeld).toBe(true);
  });
});

describe('an extend that Redis does not answer', () => {
  it('rejects as unavailable, the lock is held until its deadline, and the watchdog goes on', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 300 });
    const lock = await locks.acquire('retried', { ttlMs: 2_000 });
    proxy.hold();
    await expect(lock.extend(60_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'retried' });
    expect(lock.isHeld).toBe(true);
    expect(lock.remainingMs).toBeLessThan(2_000);
    proxy.release();
    await until(() => lock.remainingMs > 10_000, { what: 'the watchdog has extended the lease' });
    await proxy.stop();
  });

  it('by a shorter ttl counts at once, since it may have run', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 100, watchdog: false });
    const lock = await locks.acquire('shorter-unanswered', { ttlMs: 60_000 });
    await lock.extend();
    const cut = proxy.cutAfterRequest('evalsha');
    await expect(lock.extend(700)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await cut;
    expect(lock.remainingMs).toBeLessThanOrEqual(700);
    await until(() => lock.signal.aborted, { what: 'the lease has ended' });
    await proxy.stop();
  });

  it('rejects as lost when the deadline came first', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 600 });
    const lock = await locks.acquire('too-late', { ttlMs: 300 });
    proxy.hold();
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', key: 'too-late' });
    proxy.release();
    await proxy.stop();
  });

  it('leaves no key behind for its longer ttl, when it ran after all', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 100, watchdog: false });
    const lock = await locks.acquire('orphan', { ttlMs: 400 });
    const { signal } = lock;
    const cut = proxy.cutAfterRequest('evalsha');
    await expect(lock.extend(60_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await cut;
    expect(await ttlInRedis('orphan')).toBeGreaterThan(50_000);
    await until(() => signal.aborted, { what: 'the lease has ended at its old deadline' });
    expect(signal.reason).toMatchObject({ reason: 'expired' });
    await until(async () => (await holderInRedis('orphan')) === null, { what: 'the key is gone' });
    await proxy.stop();
  });
});
