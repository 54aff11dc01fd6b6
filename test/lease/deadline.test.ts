import { afterEach, describe, expect, it, vi } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { blockEventLoop, proxyTo, serverOfFile } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const server = await serverOfFile();
afterEach(() => {
  vi.restoreAllMocks();
});

const isFree = async (key: string): Promise<boolean> => (await server.keys(`lock:{${key}}`)).length === 0;

it('a lock whose event loop was blocked for twice the ttl is not held in the first line that runs, its signal is aborted, and the reason is stalled [G7]', async () => {
  const locks = await openLocks({ redis: server.url });
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

describe('a wall clock', () => {
  it.each([true, false])(
    'that is set ahead, or ran on while the machine slept, costs the lease, and the lock is free for the next (watchdog: %s)',
    async (watchdog) => {
      const locks = await openLocks({ redis: server.url, watchdog });
      const lock = await locks.acquire('ahead', { ttlMs: 20_000 });
      const wall = Date.now.bind(Date);
      vi.spyOn(Date, 'now').mockImplementation(() => wall() + 60_000);
      expect(lock.isHeld).toBe(false);
      expect(lock.signal.reason).toMatchObject({ reason: watchdog ? 'stalled' : 'expired' });
      await until(() => isFree('ahead'), { what: 'the key is released' });
    },
  );

  it('a wall clock that is set back changes nothing about a lock [G9]', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('back', { ttlMs: 1_500 });
    const wall = Date.now.bind(Date);
    vi.spyOn(Date, 'now').mockImplementation(() => wall() - 3_600_000);
    await until(() => lock.remainingMs < 1_350, { what: 'time has passed' });
    await until(() => lock.remainingMs > 1_350, { what: 'the lease has been extended' });
    expect(lock.remainingMs).toBeLessThanOrEqual(1_500);
    expect(await lock.release()).toBe(true);
  });
});

describe('a grant that arrives when nothing is left of its ttl', () => {
  async function heldUp(): Promise<{ proxy: TcpProxy; locks: LockService }> {
    const proxy = await proxyTo(server);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 5_000 });
    return { proxy, locks };
  }

  const passMs = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

  it('a grant that arrives when nothing is left of its ttl is refused and undone [G6]', async () => {
    const { proxy, locks } = await heldUp();
    await server.resetCalls();
    proxy.hold();
    const acquiring = locks.acquire('late', { ttlMs: 300, waitMs: 0 });
    const refused = expect(acquiring).rejects.toThrow(/its answer took \d+ ms, but the lease is only 300 ms long/);
    await passMs(300);
    proxy.release();
    await refused;
    await until(async () => (await server.calls()).del === 1, { what: 'the grant is undone' });
    expect(await isFree('late')).toBe(true);
  });

  it('is asked for again while there is time to wait, and counts from when it was sent', async () => {
    const { proxy, locks } = await heldUp();
    proxy.hold();
    const acquiring = [
      locks.acquire('again', { ttlMs: 700, waitMs: 10_000 }),
      locks.acquire('slow', { ttlMs: 10_000 }),
    ];
    await passMs(700);
    proxy.release();
    const [again, slow] = await Promise.all(acquiring);
    expect(again!.isHeld).toBe(true);
    expect(slow!.remainingMs).toBeLessThanOrEqual(10_000 - 102 - 700 + 5);
    for (const lock of [again, slow]) expect(await lock!.release()).toBe(true);
    expect(await isFree('again')).toBe(true);
  });
});
