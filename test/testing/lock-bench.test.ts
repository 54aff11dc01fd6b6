import { LockContendedError, LockLostError, LockOptionsError, LockUnavailableError } from 'nest-redis-lock';
import { guard } from 'nest-redis-lock/sql';
import { LockBench } from 'nest-redis-lock/testing';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { until } from '../support/until.js';

let bench: LockBench;
beforeEach(() => {
  bench = new LockBench();
});

/** Work under the lock, which has begun, and ends when this is called. */
async function begin(key: string, onSignal: (signal: AbortSignal) => void = () => {}) {
  let end!: () => void;
  const ends = new Promise<void>((resolve) => (end = resolve));
  let call!: Promise<string>;
  await new Promise<void>((begun, failed) => {
    call = bench.locks.withLock(key, async ({ signal }) => {
      onSignal(signal);
      begun();
      await ends;
      return 'done';
    });
    call.catch(failed);
  });
  return { call, end };
}

it('guard accepts held locks of the bench, sends nothing, and rejects lost locks [G954]', async () => {
  const { locks } = bench;
  const sent: string[] = [];
  const tx = { query: (text: string) => Promise.resolve(sent.push(text)) };
  expect(await locks.withLock('a', (lock) => guard(lock, tx).then(() => 'guarded'))).toBe('guarded');
  const [lock, set] = [await locks.acquire('b'), await locks.acquireAll(['c', 'd'])];
  await guard(set, tx);
  bench.lose('b', 'stolen');
  bench.lose('d');
  await expect(guard(lock, tx)).rejects.toMatchObject({ name: 'LockLostError', key: 'b', reason: 'stolen' });
  await expect(guard(set, tx)).rejects.toMatchObject({ name: 'LockLostError', key: 'd', reason: 'expired' });
  await expect(guard(await locks.acquire('e'), {} as never)).rejects.toBeInstanceOf(LockOptionsError);
  expect(sent).toEqual([]);
});

it('a lock held elsewhere on the bench is handed over to the calls that wait when it is released [G420]', async () => {
  const other = await bench.holdElsewhere('k');
  const calls = [bench.locks.acquire('k'), bench.locks.acquire('k')];
  await until(async () => (await bench.locks.inspect('k'))?.waiters === 2, { what: 'both wait' });
  expect(await bench.locks.tryAcquire('k')).toBeNull();
  expect((await bench.locks.inspect('k'))!.holder).toEqual({ owner: other.owner, host: 'elsewhere', pid: 1 });

  let hasFirst = false;
  void calls[0]!.then(() => (hasFirst = true));
  await other.release();
  expect(hasFirst).toBe(true);
  await (await calls[0]!).release();
  expect(await (await calls[1]!).release()).toBe(true);
  expect(bench.heldKeys).toEqual([]);
});

it('a lock held elsewhere on the bench refuses a call that does not wait, can be released by force, and ends with its scope', async () => {
  const other = await bench.holdElsewhere('k');
  await expect(bench.locks.acquire('k', { waitMs: 0 })).rejects.toMatchObject({
    holder: { owner: other.owner },
    message: expect.stringContaining('Lock "k" is held by pid 1 on elsewhere'),
  });
  const call = bench.locks.acquire('k');
  await until(async () => (await bench.locks.inspect('k'))?.waiters === 1, { what: 'it waits' });
  expect(await bench.locks.forceRelease('k')).toBe(true);
  const lock = await call;
  await other.release(); // changes nothing
  expect([lock.isHeld, bench.heldKeys]).toEqual([true, ['k']]);
  await expect(bench.holdElsewhere('k')).rejects.toThrow('Lock "k" cannot be held elsewhere: it is already held.');
  {
    await using _ = await bench.holdElsewhere('scoped');
  }
  expect(await bench.locks.isLocked('scoped')).toBe(false);
});

it('a refusal of the bench applies to a set of keys and names what the call held, but not to a call that holds the lock', async () => {
  await bench.locks.withLock('k', async () => {
    bench.refuse('k', 'unavailable');
    expect(await bench.locks.withLock('k', () => 'ran')).toBe('ran');
  });
  await expect(bench.locks.acquire('k')).rejects.toBeInstanceOf(LockUnavailableError);
  bench.refuse('b', 'contended');
  const nested = bench.locks.withLock('outer', () => bench.locks.acquireAll(['a', 'b', 'c']));
  await expect(nested).rejects.toMatchObject({ key: 'b', code: 'LOCK_CONTENDED', holding: ['outer'] });
  await (await bench.locks.acquireAll(['a', 'b', 'c'])).release();
  bench.refuse('mail', 'contended');
  await expect(bench.locks.acquirePermits('mail', { limit: 5 })).rejects.toMatchObject({ permits: 1 });
});

it('the bench refuses invalid reasons, counts and options, and the loss of a lock that is not held', async () => {
  expect(() => bench.refuse('k', 'broken' as never)).toThrow('reason must be "contended" or "unavailable"');
  expect(() => bench.refuse('k', 'contended', { times: 0 })).toThrow('times must be a whole number from 1');
  expect(() => bench.lose('k')).toThrow('the code under test does not hold it. It holds none.');
  await bench.locks.acquire('order:17');
  await bench.holdElsewhere('k');
  expect(() => bench.lose('k')).toThrow(LockOptionsError);
  expect(() => bench.lose('k')).toThrow('It holds "order:17".');
  expect(() => bench.lose('order:17', 'released' as never)).toThrow('reason must be');
  expect(() => new LockBench({ keyPrefix: 'x' } as never)).toThrow(
    'There is no option "keyPrefix": expected name, ttlMs',
  );
});

it('the bench refuses as many calls as it was given, at once and with the error of production [G421]', async () => {
  bench.refuse('k', 'contended', { times: 2 });
  bench.refuse('k', 'unavailable');
  const events: string[] = [];
  bench.locks.events$.subscribe(({ type }) => events.push(type));
  const since = performance.now();
  const contended = await bench.locks.withLock('k', () => 'ran').catch((error: unknown) => error);
  expect(contended).toBeInstanceOf(LockContendedError);
  expect(contended).toMatchObject({ status: 409, key: 'k', waitedMs: 10_000, holder: { host: 'elsewhere' } });
  expect(await bench.locks.tryAcquire('k')).toBeNull();
  const unavailable = await bench.locks.withLock('k', () => 'ran').catch((error: unknown) => error);
  expect(unavailable).toBeInstanceOf(LockUnavailableError);
  expect(unavailable).toMatchObject({ status: 503, key: 'k', causes: [{ node: 'the store of LockBench' }] });
  expect(performance.now() - since).toBeLessThan(2_000);

  expect(await bench.locks.withLock('other', () => 'ran')).toBe('ran');
  expect(await bench.locks.withLock('k', () => 'ran')).toBe('ran');
  expect(events.slice(0, 3)).toEqual(['contended', 'contended', 'unavailable']);
});

describe('a loss', () => {
  it.each(['expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed'] as const)(
    'a loss on the bench aborts the signal in that line, and fails the call with its outcome (%s) [G429]',
    async (reason) => {
      let signal!: AbortSignal;
      const { call, end } = await begin('k', (given) => (signal = given));
      bench.lose('k', reason);
      expect(signal.aborted).toBe(true);
      expect(signal.reason).toMatchObject({ name: 'LockLostError', reason });
      end();
      const error = await call.catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(LockLostError);
      expect(error).toMatchObject({ key: 'k', reason, outcome: { status: 'fulfilled', value: 'done' } });
      expect((error as Error).cause !== undefined).toBe(reason === 'unavailable');
    },
  );

  it('after a loss on the bench the lock is free: for what the signal aborts, and for calls that wait [G422]', async () => {
    const first = await bench.locks.acquire('k');
    const again = new Promise((resolve, reject) => {
      first.signal.addEventListener('abort', () => bench.locks.acquire('k', { waitMs: 0 }).then(resolve, reject));
    });
    bench.lose('k');
    await again;
    expect(bench.heldKeys).toEqual(['k']);

    const waits = bench.locks.acquire('k');
    bench.lose('k', 'stolen');
    expect((await waits).isHeld).toBe(true);
  });
});

it('the journal of the bench has what was acquired, refused, released and lost, in order [G423]', async () => {
  const { call, end } = await begin('k');
  const second = bench.locks.withLock('k', { ttlMs: 5_000, holdMs: 20, maxHoldMs: 60_000 }, () => {});
  await expect(bench.locks.acquire('k', { waitMs: 0 })).rejects.toThrow();
  end();
  await call;
  await second;
  bench.refuse('other', 'unavailable');
  await expect(bench.locks.acquire('other')).rejects.toThrow();
  await bench.locks.acquire('other', { waitMs: 7 });
  bench.lose('other', 'stolen');
  await Promise.resolve();
  expect(bench.journal).toEqual([
    { event: 'acquired', key: 'k', ttlMs: 30_000, waitMs: 10_000 },
    { event: 'refused', key: 'k', reason: 'contended' },
    { event: 'released', key: 'k' },
    { event: 'acquired', key: 'k', ttlMs: 5_000, waitMs: 10_000, holdMs: 20, maxHoldMs: 60_000 },
    { event: 'released', key: 'k' },
    { event: 'refused', key: 'other', reason: 'unavailable' },
    { event: 'acquired', key: 'other', ttlMs: 30_000, waitMs: 7 },
    { event: 'lost', key: 'other', reason: 'stolen' },
  ]);
});

describe('under fake timers', () => {
  beforeEach(() => {
    vi.useFakeTimers({
      toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'queueMicrotask', 'performance', 'Date'],
    });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('the bench hands over, refuses and loses locks under fake timers without an advance of the time [G424]', async () => {
    const other = await bench.holdElsewhere('k');
    const waits = bench.locks.acquire('k');
    await other.release();
    const lock = await waits;
    bench.lose('k');
    expect(lock.signal.aborted).toBe(true);
    await bench.holdElsewhere('k');
    const waitsToo = bench.locks.acquire('k');
    await new Promise((resolve) => process.nextTick(resolve));
    await bench.locks.forceRelease('k');
    await (await waitsToo).release();
    bench.refuse('k', 'unavailable', { times: 2 });
    await expect(bench.locks.acquire('k')).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(bench.locks.acquire('k')).rejects.toBeInstanceOf(LockUnavailableError);
    expect(await (await bench.locks.acquire('k')).release()).toBe(true);
  });
});

it('permits held elsewhere leave the remaining ones to the code under test, and are handed over by their release [G896]', async () => {
  const { locks } = bench;
  const other = await bench.holdElsewhere('mail', { limit: 3, permits: 2 });
  const own = await locks.acquirePermits('mail', { limit: 3 });
  expect(await locks.tryAcquirePermits('mail', { limit: 3 })).toBeNull();
  expect(bench.heldKeys).toEqual(['mail']);
  const waiting = locks.acquirePermits('mail', { limit: 3, permits: 2 });
  await until(async () => (await locks.inspect('mail'))?.waiters === 1, { what: 'it waits' });
  await expect(bench.holdElsewhere('mail', { limit: 3 })).rejects.toThrow(
    'it is already held, or too few permits are free',
  );
  await expect(bench.holdElsewhere('mail', { limit: 3, ttlMs: 1 } as never)).rejects.toThrow('no option "ttlMs"');
  await expect(bench.holdElsewhere('mail', { limit: 1, permits: 2 })).rejects.toThrow('permits must be at most limit');
  await other.release();
  const next = await waiting;
  expect(await locks.inspect('mail')).toMatchObject({ permits: { held: 3, limit: 3 } });
  await Promise.all([own.release(), next.release()]);
  expect(bench.heldKeys).toEqual([]);
  const kept = await bench.holdElsewhere('mail', { limit: 3 });
  const both = [await locks.acquirePermits('mail', { limit: 3 }), await locks.acquirePermits('mail', { limit: 3 })];
  bench.lose('mail', 'stolen');
  expect(both.map(({ isHeld }) => isHeld)).toEqual([false, false]);
  expect((await locks.inspect('mail'))!.holders.map(({ holder }) => holder.owner)).toEqual([kept.owner]);
});
