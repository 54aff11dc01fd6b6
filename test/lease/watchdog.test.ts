import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Lock } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { blockEventLoop, proxyTo, redisServer } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, ownerOf, isFree } = await sceneOfFile();

it('a lock has exactly one holder while a handler runs for five times the ttl, though others try all the time [G1]', async () => {
  const [locks, others] = await Promise.all([1, 2].map(() => open({ ttlMs: 1_500 })));
  let tries = 0;
  await locks!.withLock('long', async (lock) => {
    for (const end = performance.now() + 7_500; performance.now() < end; tries++) {
      expect(await others!.tryAcquire('long')).toBeNull();
      expect(await ownerOf('long')).toBe(lock.owner);
      expect(lock.isHeld).toBe(true);
      await sleep(20);
    }
  });
  expect(tries).toBeGreaterThan(10);
});

it('the signal of a lock without the watchdog aborts at the deadline, before Redis gives the key to others [G37]', async () => {
  const locks = await open({ watchdog: false, marginMs: 1_000 });
  const validityMs = 1_300 - 13 - 2 - 1_000;
  const order: string[] = [];
  setTimeout(() => order.push('50 ms before'), validityMs - 50);
  const lock = await locks.acquire('off', { ttlMs: 1_300 });
  setTimeout(() => order.push('50 ms after'), validityMs + 50);
  lock.signal.addEventListener('abort', () => order.push(`aborted, held: ${lock.isHeld}`));
  expect(order).toEqual([]);
  await until(() => lock.signal.aborted, { what: 'the signal has aborted' });
  expect(await ownerOf('off')).toBe(lock.owner);
  await until(() => order.length === 3, { what: 'both timers have fired' });
  expect(order).toEqual(['50 ms before', 'aborted, held: false', '50 ms after']);
  expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'off', reason: 'expired' });
});

it('the error of work that fails after the loss of its lock is kept in the outcome [G42]', async () => {
  const locks = await open();
  const failure = new Error('from the work');
  const working = locks.withLock('fails', { ttlMs: 200, watchdog: false }, async (lock) => {
    await until(() => lock.signal.aborted, { what: 'the lock is lost' });
    throw failure;
  });
  await expect(working).rejects.toMatchObject({
    reason: 'expired',
    outcome: { status: 'rejected', reason: failure },
  });
});

it("a call with onLost: 'ignore' settles as its work does [G43]", async () => {
  const locks = await open({ onLost: 'ignore' });
  const untilLost = (result: () => string) =>
    locks.withLock('ignored', { ttlMs: 50, watchdog: false }, async (lock) => {
      await until(() => !lock.isHeld, { what: 'the lock is lost' });
      return result();
    });
  expect(await untilLost(() => 'value')).toBe('value');
  const fails = untilLost(() => {
    throw new Error('from the work');
  });
  await expect(fails).rejects.toThrow('from the work');
});

const TTL_MS = 30_000;

afterEach(() => {
  vi.restoreAllMocks();
});

const endsAt = (lock: Lock) => performance.now() + lock.remainingMs;

/** The times of the extensions, in tenths of a second. */
async function extensionsOf(lock: Lock, forMs: number): Promise<number[]> {
  const from = performance.now();
  const times: number[] = [];
  for (let end = endsAt(lock); performance.now() < from + forMs; end = endsAt(lock)) {
    await sleep(10);
    if (endsAt(lock) > end + 50) times.push(Math.round((performance.now() - from) / 100));
  }
  return times;
}

describe('Watchdog', () => {
  it('extends in each process at a pace of its own, up to a tenth earlier, so that leases that were extended together drift apart [G283]', async () => {
    const redis = (await redisServer()).url;
    const times: Promise<number[]>[] = [];
    for (const chance of [0, 0.5, 1]) {
      const random = vi.spyOn(Math, 'random').mockReturnValue(chance);
      const locks = await openLocks({ redis, ttlMs: TTL_MS });
      random.mockRestore();
      times.push(extensionsOf(await locks.acquire(`pace ${chance}`), TTL_MS + 300));
    }
    expect(await Promise.all(times)).toEqual([
      [100, 200, 300],
      [95, 190, 285],
      [90, 180, 270],
    ]);
  });

  it('tries again and again until the deadline, and keeps the lock if the last try succeeds', async () => {
    const proxy = await proxyTo(await redisServer());
    const locks = await openLocks({ redis: proxy.url, ttlMs: 9_000, commandTimeoutMs: 500 });
    const lock = await locks.acquire('saved');
    proxy.hold();
    await sleep(9_000 * 0.9);
    proxy.release();
    await sleep(9_000 * 0.5);
    expect(await lock.release()).toBe(true);
  });

  it('extends a bounded number at once and the next after a pause, in the order in which they came due', async () => {
    const locks = await openLocks({ memory: true, ttlMs: TTL_MS });
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const held = await Promise.all(Array.from({ length: 3_500 }, (_, index) => locks.acquire(`lease ${index}`)));
    const isExtended = (lock: Lock) => lock.remainingMs > 0.8 * TTL_MS;
    await sleep(TTL_MS / 4);
    const counts = [0];
    while (counts.at(-1)! < held.length) {
      await sleep(1);
      const extended = held.filter(isExtended);
      expect(extended).toEqual(held.slice(0, extended.length));
      if (extended.length > counts.at(-1)!) counts.push(extended.length);
    }
    const atOnce = counts.map((count, index) => count - (counts[index - 1] ?? 0));
    expect(Math.max(...atOnce)).toBeLessThanOrEqual(300);
    expect(counts.length).toBeGreaterThan(10);
  });
});

it('a lock whose event loop was blocked for twice the ttl is not held in the first line that runs, its signal is aborted, and the reason is stalled [G7]', async () => {
  const locks = await open();
  const lock = await locks.acquire('blocked', { ttlMs: 300 });
  const { signal } = lock;
  const events: string[] = [];
  locks.events$.subscribe(({ type }) => events.push(type));
  const next = locks.acquire('blocked');
  await server.resetCalls();
  blockEventLoop(600);
  expect(lock.isHeld).toBe(false);
  expect(signal.aborted).toBe(true);
  expect(JSON.parse(JSON.stringify(lock))).toMatchObject({ isHeld: false, remainingMs: 0 });
  expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', reason: 'stalled' }));
  expect(events).toEqual([]); // all that follows comes later, once
  expect((await next).isHeld).toBe(true);
  expect(events).toEqual(['lost', 'acquired']);
});

it.each([true, false])(
  'a wall clock that is set ahead, or ran on while the machine slept, costs the lease, and the lock is free for the next (watchdog: %s)',
  async (watchdog) => {
    const locks = await open({ watchdog });
    const lock = await locks.acquire('ahead', { ttlMs: 20_000 });
    const wall = Date.now.bind(Date);
    vi.spyOn(Date, 'now').mockImplementation(() => wall() + 60_000);
    expect(lock.isHeld).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: watchdog ? 'stalled' : 'expired' });
    await until(() => isFree('ahead'), { what: 'the key is released' });
  },
);

it('a wall clock that is set back changes nothing about a lock [G9]', async () => {
  const locks = await open();
  const lock = await locks.acquire('back', { ttlMs: 1_500 });
  const wall = Date.now.bind(Date);
  vi.spyOn(Date, 'now').mockImplementation(() => wall() - 3_600_000);
  await until(() => lock.remainingMs < 1_350, { what: 'time has passed' });
  await until(() => lock.remainingMs > 1_350, { what: 'the lease has been extended' });
  expect(lock.remainingMs).toBeLessThanOrEqual(1_500);
  expect(await lock.release()).toBe(true);
});

it('a grant that arrives when nothing is left of its ttl is undone, and its call is refused, or asks again while it has time to wait [G6]', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 5_000 });
  await server.resetCalls();
  proxy.hold();
  const acquiring = locks.acquire('late', { ttlMs: 300, waitMs: 0 });
  const refused = expect(acquiring).rejects.toThrow(/its answer took \d+ ms, but the lease is only 300 ms long/);
  await sleep(300);
  proxy.release();
  await refused;
  await until(async () => (await server.calls()).del === 1, { what: 'the grant is undone' });
  expect(await isFree('late')).toBe(true);
  proxy.hold();
  const again = locks.acquire('late', { ttlMs: 300, waitMs: 10_000 });
  await sleep(300);
  proxy.release();
  expect((await again).isHeld).toBe(true);
});
