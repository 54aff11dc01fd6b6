import { describe, expect, it } from 'vitest';
import { PACKAGES } from '../adapters/packages.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';
import { counterOn, ownerOn } from '../support/stored.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, ownerOf } = await sceneOfFile({ shutdownTimeoutMs: 10_000 });

const IS_CLOSING = { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('closing') };

describe('an application that closes', () => {
  it('aborts work after shutdownTimeoutMs because its lock is lost, and releases that lock, and locks that nobody awaits', async () => {
    const locks = await open({ shutdownTimeoutMs: 50 });
    const held = await Promise.all(Array.from({ length: 50 }, (_, index) => locks.acquire(`unawaited ${index}`)));
    let end: (() => void) | undefined;
    const call = locks.withLock('told', async ({ signal }) => {
      await new Promise<void>((resolve) => (end = resolve));
      return signal.reason as unknown;
    });
    const finish = await until(() => end, { what: 'it works' });
    for (const lock of held) void lock.release();
    await locks.onApplicationShutdown();
    expect(await server.keys('lock:{*')).toEqual([]);
    finish();
    const reason = { code: 'LOCK_LOST', reason: 'shutdown' };
    await expect(call).rejects.toMatchObject({ ...reason, outcome: { status: 'fulfilled', value: reason } });
    expect(locks.size).toBe(0);
  });

  it.each([
    ['granted', false],
    ["refused as it is another's", true],
  ])('refuses a call whose attempt under way is %s, and later calls, and leaves no orphan', async (_, isTaken) => {
    const { proxy, locks } = await openBehindProxy();
    const others = await open();
    const other = isTaken ? await others.acquire('under-way') : undefined;
    const mine = await locks.acquire('mine');
    proxy.hold();
    const acquiring = locks.acquire('under-way', { ttlMs: 60_000, waitMs: 60_000 });
    await new Promise((resolve) => setImmediate(resolve));
    const closing = locks.onApplicationShutdown();
    proxy.release();
    await expect(acquiring).rejects.toMatchObject(IS_CLOSING); // while the other one is still held: closing continues
    for (const later of [locks.acquire('later'), locks.tryAcquire('later'), locks.withLock('later', () => {})])
      await expect(later).rejects.toMatchObject({ ...IS_CLOSING, key: 'later' });
    expect(await mine.release()).toBe(true);
    await closing;
    expect(await ownerOf('under-way')).toBe(other?.owner ?? null);
    await other?.release();
  });
});

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

describe.each(Object.entries(PACKAGES))('the end of the connections of %s', (_name, { withPrefix }) => {
  const COMMAND_TIMEOUT_MS = 200;

  /** Locks of a Redis that hangs, and has got attempts for two locks that nobody waits for any more. */
  async function givenUp(held = 0) {
    const own = await redisServer();
    const redis = withPrefix(own.url, '') as never;
    const locks = await openLocks({ redis, commandTimeoutMs: COMMAND_TIMEOUT_MS, ttlMs: 60_000 });
    const handles = await Promise.all(Array.from({ length: held }, (_, index) => locks.acquire(`held ${index}`)));
    await locks.withLock('other', () => {}); // the server knows the scripts
    const counter = await counterOn(own);
    own.pause();
    const calls = await Promise.allSettled([locks.acquire('late 1'), locks.acquire('late 2')]);
    expect(calls.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    return { own, locks, handles, counter };
  }

  it('comes after the undo of locks that a hanging Redis grants too late [G1036]', async () => {
    const { own, locks, counter } = await givenUp();
    await locks.onApplicationShutdown();
    own.resume();
    await until(async () => (await counterOn(own)) > counter, { what: 'the late attempts have run' });
    expect(await own.keys('lock:{late*')).toEqual([]);
  });

  it('comes after the undo of an adoption that a hanging Redis grants too late [G1060]', async () => {
    const own = await redisServer();
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

  it('comes after one time limit when Redis hangs, however many releases are open [G1037]', async () => {
    const { locks, handles } = await givenUp(1_000);
    await Promise.allSettled(handles.map((lock) => lock.release()));
    const startedAt = performance.now();
    await locks.onApplicationShutdown();
    expect(performance.now() - startedAt).toBeLessThan(1.5 * COMMAND_TIMEOUT_MS);
  });
});
