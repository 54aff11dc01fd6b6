import { hostname } from 'node:os';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { LockContendedError, LockEvent, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { scriptCalls } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, ownerOf } = await sceneOfFile();

const aTime = expect.any(Number) as number;

describe('a lock', () => {
  it('is taken in one round trip and given back in another, and describes itself', async () => {
    const locks = await open();
    await server.resetCalls();
    const lock = await locks.acquire('told', { ttlMs: 10_000 });
    expect(await scriptCalls(server)).toBe(1);
    expect(lock).toMatchObject({ key: 'told', mode: 'exclusive', isHeld: true, owner: await ownerOf('told') });
    const shown = { key: 'told', mode: 'exclusive', fencingToken: lock.fencingToken, isHeld: true };
    expect(JSON.parse(JSON.stringify(lock))).toEqual({ ...shown, remainingMs: aTime });
    expect(inspect(lock)).toMatch(/key: 'told'(?!.*claim)/s);
    await lock.release();
    expect(await scriptCalls(server)).toBe(2);
  });

  it('that others hold is refused with its holder, its remaining time, and how long the call has waited', async () => {
    const [locks, others] = [await open(), await open()];
    const { owner } = await others.acquire('contended', { ttlMs: 60_000 });
    const refusal = { code: 'LOCK_CONTENDED', status: 409, key: 'contended' };
    const holder = { owner, host: hostname(), pid: process.pid };
    const calls = [300, 100, 200].map((waitMs) =>
      locks.acquire('contended', { waitMs }).catch((error: unknown) => error),
    );
    for (const [at, waitMs] of [300, 100, 200].entries()) {
      const error = (await calls[at]) as { waitedMs: number; remainingMs: number };
      expect(error).toMatchObject({ ...refusal, holder });
      expect([error.waitedMs, error.remainingMs].every(Number.isInteger)).toBe(true);
      expect(Math.abs(error.waitedMs - waitMs)).toBeLessThan(20);
      expect(error.remainingMs).toBeGreaterThan(59_000);
      expect(error.remainingMs).toBeLessThanOrEqual(60_000);
    }
    let ran = false;
    await expect(locks.withLock('contended', { waitMs: 0 }, () => (ran = true))).rejects.toMatchObject(refusal);
    expect(ran).toBe(false);
  });

  it('whose key another program has written, without a ttl, is waited for without constant polling', async () => {
    const locks = await open();
    await server.command('SET', 'lock:{by-hand}', 'a person');
    await server.resetCalls();
    const error = await locks.acquire('by-hand', { waitMs: 2_000 }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'LOCK_CONTENDED', holder: { owner: 'a person' }, remainingMs: Infinity });
    expect(String(error)).toContain('its lease does not expire');
    expect(await scriptCalls(server)).toBeLessThan(10);
    expect((await locks.inspect('by-hand'))?.holder).toEqual({ owner: 'a person' });
  });
});

describe('tryAcquire', () => {
  it('returns null after one attempt if another process holds the lock, and without one if this process holds it', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('taken');
    await server.resetCalls();
    expect(await locks.tryAcquire('taken')).toBeNull();
    expect(await others.tryAcquire('taken')).toBeNull();
    expect(await scriptCalls(server)).toBe(1);
  });

  it('waits for the result of the attempt under way: one of several calls gets the lock, or all reject', async () => {
    const own = await redisServer();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 100 });
    const three = () => Promise.allSettled([1, 2, 3].map(() => locks.tryAcquire('at-once')));
    const [first, ...others] = await three();
    expect(first).toMatchObject({ value: { isHeld: true } });
    expect(others).toMatchObject([{ value: null }, { value: null }]);
    await (first as PromiseFulfilledResult<{ release(): unknown }>).value.release();
    own.pause();
    const unavailable = { status: 'rejected', reason: { code: 'LOCK_UNAVAILABLE' } };
    expect(await three()).toMatchObject([unavailable, unavailable, unavailable]);
  });
});

it('withLock settles as its work does, sync or async, and gives the lock back exactly once', async () => {
  const locks = await open();
  const thrown = { not: 'even an Error' };
  expect(await locks.withLock('k', () => 1)).toBe(1);
  expect(await locks.withLock('k', { ttlMs: 5_000 }, async () => 2)).toBe(2);
  const throws = (): never => {
    throw thrown;
  };
  await expect(locks.withLock('k', throws)).rejects.toBe(thrown);
  await expect(locks.withLock('k', () => Promise.reject(new Error('async')))).rejects.toThrow('async');
  expect(await locks.withLock('k', async (lock) => [await lock.release(), 'value'])).toEqual([true, 'value']);
  expect(await server.keys('lock:{k}')).toEqual([]);
});

it('inspect and isLocked report who holds a lock, since when, for how long, with which token, and how many wait here', async () => {
  const [locks, others] = [await open(), await open()];
  const from = Date.now();
  const { owner, fencingToken } = await others.acquire('inspected', { ttlMs: 20_000 });
  const waiting = [1, 2, 3].map(() => locks.acquire('inspected'));
  await until(async () => (await locks.inspect('inspected'))?.waiters === 3, { what: 'all wait' });
  const info = await locks.inspect('inspected');
  expect(info).toMatchObject({ key: 'inspected', holder: { owner, pid: process.pid }, fencingToken });
  expect(info!.remainingMs).toBeGreaterThan(19_000);
  expect(info!.remainingMs).toBeLessThanOrEqual(20_000);
  expect(Math.abs(info!.since!.getTime() - from)).toBeLessThan(50);
  expect([await locks.isLocked('inspected'), await locks.isLocked('another')]).toEqual([true, false]);
  expect(await locks.forceRelease('inspected')).toBe(true);
  for (const call of waiting) await (await call).release();
});

it('inspect, isLocked and forceRelease reject when Redis cannot be asked', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 100 });
  proxy.hold();
  for (const asking of [locks.inspect('k'), locks.isLocked('k'), locks.forceRelease('k')])
    await expect(asking).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'k' });
});

it('events$ reports each lock that was acquired, released, contended, lost and unavailable, and completes at the end', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 500 });
  const others = await open();
  const events: LockEvent[] = [];
  let completed = false;
  locks.events$.subscribe({ next: (event) => events.push(event), complete: () => (completed = true) });
  const of = { key: 'told:7', label: 'told' };

  const { owner, fencingToken, ...lock } = await locks.acquire('told:7').then((each) => ({
    owner: each.owner,
    fencingToken: each.fencingToken,
    release: () => each.release(),
  }));
  await lock.release();
  expect(events.splice(0)).toEqual([
    { type: 'acquired', ...of, owner, fencingToken, waitedMs: aTime, grant: 'free' },
    { type: 'released', ...of, owner, fencingToken, heldMs: aTime },
  ]);

  const other = await others.acquire('told:7');
  await locks.tryAcquire('told:7');
  const holder = expect.objectContaining({ owner: other.owner }) as unknown;
  expect(events.splice(0)).toEqual([{ type: 'contended', ...of, waitedMs: aTime, holder }]);
  await other.release();

  const lost = await locks.acquire('told:7');
  await server.command('DEL', 'lock:{told:7}');
  expect(await lost.release()).toBe(false);
  const loss = { type: 'lost', reason: 'expired', ...of, owner: lost.owner, fencingToken: lost.fencingToken };
  expect(events.splice(0).slice(1)).toEqual([{ ...loss, heldMs: aTime }]);

  const unconfirmed = await locks.acquire('told:7');
  events.length = 0;
  proxy.hold();
  expect(await unconfirmed.release()).toBe(false);
  await expect(locks.acquire('told:7')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  expect(events.map(({ type }) => type)).toEqual(['release-failed', 'unavailable']);
  expect(events[1]).toEqual({ type: 'unavailable', ...of, waitedMs: aTime, causes: [expect.any(Error)] });
  proxy.release();
  await until(async () => (await ownerOf('told:7')) === null, { what: 'the release is repeated' });

  await locks.onApplicationShutdown();
  expect(completed).toBe(true);
});

const work = async () => {};
const refusalOf = (call: Promise<unknown>): Promise<LockContendedError> =>
  call.then(
    () => Promise.reject(new Error('it was granted')),
    (error: LockContendedError) => error,
  );

/** Two services that share their locks if there is a server, and one service if there is none. */
const openPair = async (isOnRedis: boolean): Promise<[LockService, LockService]> => {
  const locks = await openLocks(isOnRedis ? { redis: server.url } : { memory: true });
  return [locks, isOnRedis ? await open() : locks];
};

it.each([
  ['in memory', false, 20],
  ['on Redis', true, 0],
])('a refused call names the locks that it holds meanwhile, %s [G370]', async (_, isOnRedis, waitMs) => {
  const [locks, others] = await openPair(isOnRedis);
  const taken = await others.acquire('b');
  const error = await refusalOf(
    locks.withLock('a', async () => {
      await new Promise(setImmediate);
      await locks.withLock('b', { waitMs }, work);
    }),
  );
  expect(error).toMatchObject({ code: 'LOCK_CONTENDED', key: 'b', holding: ['a'] });
  expect(error.message).toMatch(
    / onContended of @Locked\. This call held "a" meanwhile: if the holder of "b" waits for "a", neither can continue; take both at once with acquireAll\.$/,
  );
  await taken.release();
});

it('a refused call names none where it holds none, whatever other calls of the process hold [G371]', async () => {
  const [locks] = await openPair(false);
  const [taken, another] = [await locks.acquire('b'), await locks.acquire('a')];
  const error = await refusalOf(locks.withLock('b', { waitMs: 20 }, work));
  expect(error.holding).toEqual([]);
  expect(error.message).not.toContain('This call held');
  await Promise.all([taken.release(), another.release()]);
});
