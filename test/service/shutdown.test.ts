import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { PACKAGES } from '../adapters/packages.js';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { counterOn, ownerOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** With time for work to finish, which `openLocks` would not give. */
const open = (settings: RedisLockSettings = {}): Promise<LockService> =>
  openLocks({ redis: server.url, shutdownTimeoutMs: 10_000, ...settings });

async function throughProxy(settings: RedisLockSettings = {}): Promise<{ proxy: TcpProxy; locks: LockService }> {
  const proxy = await TcpProxy.start(server.port);
  onTestFinished(() => proxy.stop());
  return { proxy, locks: await openLocks({ redis: proxy.url, shutdownTimeoutMs: 10_000, ...settings }) };
}

const isFree = async (key: string): Promise<boolean> => (await server.keys(`lock:{${key}}`)).length === 0;
const IS_CLOSING = { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('closing') };

/** Work under a lock that lasts until the test ends it. */
async function working<T>(locks: LockService, key: string, end: () => T | Promise<T>, settings = {}) {
  const [begun, finish] = [new Gate(), new Gate()];
  const call = locks.withLock(key, settings, async () => {
    begun.open();
    await finish.opened;
    return end();
  });
  call.catch(() => {});
  await begun.opened;
  return { call, finish };
}

describe('work that holds a lock when the application closes', () => {
  it('finishes under a live watchdog, its result is returned, and its key is gone before the connections are', async () => {
    const locks = await open();
    const { call, finish } = await working(locks, 'finishes', () => locks.current().isHeld, { ttlMs: 1_500 });
    const closing = locks.onApplicationShutdown();
    await server.command('PEXPIRE', 'lock:{finishes}', 60_000);
    const extended = async () => ((await server.command('PTTL', 'lock:{finishes}')) as number) <= 1_500;
    await until(extended, { what: 'the watchdog has extended the lease' });
    finish.open();
    expect(await call).toBe(true);
    await closing;
    expect(await isFree('finishes')).toBe(true);
  });

  it('does not keep the application when it has finished, nor when there is none', async () => {
    const locks = await open({ shutdownTimeoutMs: 600_000 });
    const { call, finish } = await working(locks, 'keeps', () => 'result');
    finish.open();
    await call;
    await locks.onApplicationShutdown();
  });

  it.each([
    ['has finished', (_locks: LockService, finish: Gate) => finish.open()],
    ['has lost its lock', (locks: LockService) => locks.forceRelease('keeps')],
  ])('keeps the application until it %s, and no longer', async (_until, end) => {
    const locks = await open({ shutdownTimeoutMs: 600_000 });
    const { finish } = await working(locks, 'keeps', () => {});
    const closing = locks.beforeApplicationShutdown();
    const early = new Promise((resolve) => setImmediate(resolve, 'it waits'));
    expect(await Promise.race([closing, early])).toBe('it waits');
    await end(locks, finish);
    await closing;
    finish.open();
  });

  it('takes locks that it holds already, and others that it needs', async () => {
    const locks = await open();
    const { call, finish } = await working(locks, 'needs', async () => {
      const again = await locks.withLock('needs', (lock) => lock.isHeld);
      const more = await locks.withLock('needs-more', (lock) => lock.isHeld);
      return { again, more };
    });
    const closing = locks.onApplicationShutdown();
    finish.open();
    expect(await call).toEqual({ again: true, more: true });
    await closing;
    expect(await server.keys('lock:{needs*}')).toEqual([]);
  });

  it('is told by its signal after shutdownTimeoutMs, and its key is gone', async () => {
    const locks = await open({ shutdownTimeoutMs: 50 });
    const { call, finish } = await working(locks, 'told', () => locks.current().signal.reason);
    const manual = await locks.acquire('told-manual');
    await locks.onApplicationShutdown();
    expect(manual.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'shutdown' });
    expect(await isFree('told')).toBe(true);
    expect(await isFree('told-manual')).toBe(true);
    finish.open();
    await expect(call).rejects.toMatchObject({
      reason: 'shutdown',
      outcome: { status: 'fulfilled', value: { reason: 'shutdown' } },
    });
    expect(locks.size).toBe(0);
  });

  it('stops waiting for more locks after shutdownTimeoutMs', async () => {
    const [locks, others] = [await open({ shutdownTimeoutMs: 50 }), await open()];
    const other = await others.acquire('waits-for');
    const waits = new Gate();
    const { call, finish } = await working(locks, 'waits', () => {
      waits.open();
      return locks.acquire('waits-for', { waitMs: 60_000 });
    });
    finish.open();
    await waits.opened;
    await locks.onApplicationShutdown();
    await expect(call).rejects.toMatchObject({ outcome: { status: 'rejected', reason: IS_CLOSING } });
    await other.release();
  });

  it('is not given a lock whose grant arrives after shutdownTimeoutMs, and no orphan is left', async () => {
    const { proxy, locks } = await throughProxy({ shutdownTimeoutMs: 50, commandTimeoutMs: 5_000 });
    const { call, finish } = await working(locks, 'late', () => locks.acquire('late-inner', { ttlMs: 60_000 }));
    proxy.hold();
    finish.open();
    const closing = locks.onApplicationShutdown();
    const outer = locks.events$.subscribe(({ type }) => type === 'lost' && proxy.release());
    await expect(call).rejects.toMatchObject({ reason: 'shutdown', outcome: { reason: IS_CLOSING } });
    await closing;
    outer.unsubscribe();
    expect(await server.keys('lock:{late*}')).toEqual([]);
  });
});

describe('the signal "closing" of a lock', () => {
  it('the closing signal of a lock aborts when the application begins to close, with the reason to end the work, while the lock is still held [G220]', async () => {
    const locks = await open();
    const lock = await locks.acquire('asked');
    const { closing } = lock;
    expect([closing.aborted, lock.closing]).toEqual([false, closing]);
    locks.onModuleDestroy();
    expect(closing.reason).toMatchObject({ ...IS_CLOSING, key: 'asked' });
    expect([lock.isHeld, lock.signal.aborted]).toEqual([true, false]);
    expect(await lock.release()).toBe(true);
  });

  it('is that of the outer lock in a nested one', async () => {
    const locks = await open();
    await locks.withLock('nested', (outer) =>
      locks.withLock('nested', (inner) => {
        expect(inner.closing).toBe(outer.closing);
        expect(locks.current().closing).toBe(outer.closing);
      }),
    );
  });

  it('has aborted already where it is asked for later, also by work whose lock was given back or lost', async () => {
    const locks = await open();
    const [held, released, lost] = [await locks.acquire('a'), await locks.acquire('b'), await locks.acquire('c')];
    await released.release();
    await locks.forceRelease('c');
    const made = [released.closing, lost.closing];
    locks.onModuleDestroy();
    const later = await locks.acquire('d');
    expect([held, released, lost, later].map(({ closing }) => closing.aborted)).toEqual([true, true, true, true]);
    expect(made.map(({ aborted }) => aborted)).toEqual([true, true]);
    for (const lock of [held, later]) await lock.release();
  });

  it('keeps nothing of locks that were given back, however many listen to theirs', async () => {
    const locks = await open();
    const listeners: WeakRef<() => void>[] = [];
    for (let index = 0; index < 20; index++) {
      await locks.withLock('listens', ({ closing }) => {
        const listener = () => {};
        listeners.push(new WeakRef(listener));
        closing.addEventListener('abort', listener);
      });
    }
    const kept = () => {
      collectGarbage();
      return listeners.filter((listener) => listener.deref()).length;
    };
    await until(() => kept() < 3, { what: 'the listeners are collected' });
  });

  it('does not let a lock that is released at that very moment go to a call that is refused', async () => {
    const [locks, others] = [await open({ shutdownTimeoutMs: 600_000, cohortMs: 60_000 }), await open()];
    const other = await others.acquire('leads');
    const leads = locks.acquire('leads');
    const waits = locks.acquire('leads').catch((error: unknown) => error);
    await until(async () => (await locks.inspect('leads'))?.waiters === 2, { what: 'both wait' });
    await other.release();
    const lock = await leads;
    lock.closing.addEventListener('abort', () => void lock.release());
    await locks.onApplicationShutdown();
    expect(await waits).toMatchObject(IS_CLOSING);
    expect(await isFree('leads')).toBe(true);
  });
});

describe('calls that hold nothing when the application closes', () => {
  it('are granted locks that are free until beforeApplicationShutdown, but do not wait, however they are asked', async () => {
    const locks = await open();
    const busy = await locks.acquire('busy here');
    const there = await (await open()).acquire('busy there');
    locks.onModuleDestroy();
    const { signal } = new AbortController();
    for (const options of [{}, { signal }, { waitMs: 0 }, { waitMs: 900 }]) {
      const lock = await locks.acquire('free', options);
      expect(await lock.release()).toBe(true);
    }
    for (const key of ['busy here', 'busy there']) {
      expect(await locks.tryAcquire(key)).toBeNull();
      for (const options of [{}, { signal }, { waitMs: 60_000, signal }])
        await expect(locks.acquire(key, options)).rejects.toMatchObject({ ...IS_CLOSING, key });
    }
    for (const lock of [busy, there]) await lock.release();
  });

  it('are granted what they were asking for when the application begins to close', async () => {
    const { proxy, locks } = await throughProxy();
    proxy.hold();
    const { signal } = new AbortController();
    const acquiring = [locks.acquire('asks'), locks.acquire('asks with a signal', { signal })];
    await new Promise((resolve) => setImmediate(resolve));
    locks.onModuleDestroy();
    proxy.release();
    for (const lock of await Promise.all(acquiring)) expect(await lock.release()).toBe(true);
  });

  it('are refused at once, in the local queue and contending in Redis, while work goes on', async () => {
    const [locks, others] = [await open(), await open()];
    const { call, finish } = await working(locks, 'local', () => 'result');
    const remote = await others.acquire('remote');
    const waits = ['local', 'local', 'remote', 'remote'].map((key) =>
      locks.acquire(key, { waitMs: 60_000 }).catch((error: unknown) => error),
    );
    await until(async () => (await locks.inspect('local'))?.waiters === 2, { what: 'two wait for the work' });
    const closing = locks.onApplicationShutdown();
    const errors = await Promise.all(waits);
    expect(errors).toEqual(
      ['local', 'local', 'remote', 'remote'].map((key) => expect.objectContaining({ ...IS_CLOSING, key })),
    );
    expect(await isFree('local')).toBe(false);
    finish.open();
    expect(await call).toBe('result');
    await closing;
    await remote.release();
  });

  it('are refused when they come later', async () => {
    const locks = await open();
    await locks.beforeApplicationShutdown();
    await expect(locks.acquire('later')).rejects.toMatchObject({ ...IS_CLOSING, key: 'later' });
    await expect(locks.tryAcquire('later')).rejects.toMatchObject(IS_CLOSING);
    await expect(locks.withLock('later', () => {})).rejects.toMatchObject(IS_CLOSING);
    await locks.onApplicationShutdown();
    await expect(locks.acquire('later')).rejects.toMatchObject(IS_CLOSING);
    expect(await isFree('later')).toBe(true);
  });

  it('are refused when their attempt under way is granted, and leave no orphan', async () => {
    const { proxy, locks } = await throughProxy();
    proxy.hold();
    const acquiring = locks.acquire('under-way', { ttlMs: 60_000 });
    const refused = expect(acquiring).rejects.toMatchObject(IS_CLOSING);
    await new Promise((resolve) => setImmediate(resolve));
    const closing = locks.onApplicationShutdown();
    proxy.release();
    await refused;
    await closing;
    expect(await isFree('under-way')).toBe(true);
  });

  it('are refused when the answer to their attempt under way is that somebody else holds the lock', async () => {
    const [{ proxy, locks }, others] = [await throughProxy(), await open()];
    const other = await others.acquire('busy');
    const mine = await locks.acquire('mine');
    proxy.hold();
    const acquiring = locks.acquire('busy', { waitMs: 60_000 });
    const refused = expect(acquiring).rejects.toMatchObject(IS_CLOSING);
    await new Promise((resolve) => setImmediate(resolve));
    const closing = locks.onApplicationShutdown();
    proxy.release();
    await refused; // while `mine` is still held: the closing goes on
    await mine.release();
    await closing;
    await other.release();
  });

  it('leave no orphan when they had given up an attempt that is still under way', async () => {
    const { proxy, locks } = await throughProxy();
    proxy.hold();
    await expect(locks.acquire('given-up', { waitMs: 20, ttlMs: 60_000 })).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
    });
    const closing = locks.onApplicationShutdown();
    proxy.release();
    await closing;
    expect(await isFree('given-up')).toBe(true);
  });
});

describe('the end of the connections', () => {
  it('comes behind releases that were not awaited', async () => {
    const locks = await open();
    const held = await Promise.all(Array.from({ length: 50 }, (_, index) => locks.acquire(`unawaited ${index}`)));
    for (const lock of held) void lock.release();
    await locks.onApplicationShutdown();
    expect(await server.keys('lock:{unawaited*}')).toEqual([]);
  });

  it('comes behind the release of a lease that was lost a moment before', async () => {
    const { proxy, locks } = await throughProxy({ commandTimeoutMs: 100, marginMs: 5_000, watchdog: false });
    const lock = await locks.acquire('moment', { ttlMs: 6_200 });
    await lock.extend();
    const cut = proxy.cutAfterRequest('evalsha');
    await expect(lock.extend(60_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await cut;
    await until(() => !lock.isHeld, { what: 'the lease has ended' });
    expect(await isFree('moment')).toBe(false);
    await until(() => locks.isLocked('moment').catch(() => false), { what: 'the connection is back' });
    await locks.onApplicationShutdown();
    expect(await isFree('moment')).toBe(true);
  });

  it('comes in bounded time when Redis hangs', async () => {
    const own = await RedisServer.start();
    onTestFinished(() => own.stop());
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200, shutdownTimeoutMs: 100 });
    await locks.acquire('hangs');
    own.pause();
    const acquiring = locks.acquire('hangs-too').catch((error: unknown) => error);
    const startedAt = performance.now();
    await locks.onApplicationShutdown();
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    expect(await acquiring).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  });
});

describe.each(Object.entries(PACKAGES))('the end of the connections of %s', (_name, { withPrefix }) => {
  const COMMAND_TIMEOUT_MS = 200;

  /** Locks of a Redis that hangs, and has been sent attempts for two locks that nobody waits for any more. */
  async function givenUp(held = 0) {
    const own = await RedisServer.start();
    onTestFinished(() => own.stop());
    const redis = withPrefix(own.url, '') as never;
    const locks = await openLocks({ redis, commandTimeoutMs: COMMAND_TIMEOUT_MS, ttlMs: 60_000 });
    const handles = await Promise.all(Array.from({ length: held }, (_, index) => locks.acquire(`held ${index}`)));
    await locks.withLock('other', () => {}); // the scripts are known to the server
    const counter = await counterOn(own);
    own.pause();
    const calls = await Promise.allSettled([locks.acquire('late 1'), locks.acquire('late 2')]);
    expect(calls.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    return { own, locks, handles, counter };
  }

  it('comes behind the undo of locks that a hanging Redis grants too late [G1036]', async () => {
    const { own, locks, counter } = await givenUp();
    await locks.onApplicationShutdown();
    own.resume();
    await until(async () => (await counterOn(own)) > counter, { what: 'the late attempts have run' });
    expect(await own.keys('lock:{late*')).toEqual([]);
  });

  it('comes behind the undo of an adoption that a hanging Redis grants too late [G1060]', async () => {
    const own = await RedisServer.start();
    onTestFinished(() => own.stop());
    const locks = await openLocks({ redis: withPrefix(own.url, '') as never, commandTimeoutMs: COMMAND_TIMEOUT_MS });
    const parcel = await (await locks.acquire('parcel')).detach({ ttlMs: 3_600_000 });
    const counter = await counterOn(own);
    own.pause();
    await expect(locks.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await locks.onApplicationShutdown();
    own.resume();
    await until(async () => (await counterOn(own)) > counter, { what: 'the late adoption has run' });
    expect(await ownerOn(own, 'parcel')).toBe(parcel.owner);
  });

  it('comes after one time limit when Redis hangs, however much is to give back [G1037]', async () => {
    const { locks, handles } = await givenUp(5_000);
    await Promise.allSettled(handles.map((lock) => lock.release()));
    const startedAt = performance.now();
    await locks.onApplicationShutdown();
    expect(performance.now() - startedAt).toBeLessThan(1.5 * COMMAND_TIMEOUT_MS);
  });
});
