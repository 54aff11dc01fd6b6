import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { LockEvent, LockLostReason, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { blockEventLoop, proxyTo, redisServer, serverOfFile } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const server = await serverOfFile();

const TTL_MS = 1_200;
/** A third of the ttl, and what a busy machine may add: still before the deadline. */
const TOLD_WITHIN_MS = TTL_MS * 0.9;

/** Does something to a lock that is held, and tells after what time and why its holder lost it. */
async function loses(
  locks: LockService,
  key: string,
  happen: () => unknown,
): Promise<{ reason: LockLostReason; afterMs: number }> {
  const lock = await locks.acquire(key, { ttlMs: TTL_MS });
  const lost = new Promise<LockLostReason>((resolve) => {
    lock.signal.addEventListener('abort', () => resolve(lock.signal.reason.reason));
  });
  const startedAt = performance.now();
  await happen();
  const reason = await lost;
  const afterMs = performance.now() - startedAt;
  expect(lock.isHeld).toBe(false);
  expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_LOST', key, reason }));
  return { reason, afterMs };
}

describe('a holder whose key was', () => {
  it('a holder whose key was deleted knows of the loss within about a third of the ttl [G39]', async () => {
    const locks = await openLocks({ redis: server.url });
    const { reason, afterMs } = await loses(locks, 'deleted', () => server.command('DEL', 'lock:{deleted}'));
    expect(reason).toBe('expired');
    expect(afterMs).toBeLessThan(TOLD_WITHIN_MS);
    expect(await server.keys('lock:{deleted}')).toEqual([]);
  });

  it('a holder whose key was replaced knows of the loss within about a third of the ttl, and its release leaves the key to the other [G40]', async () => {
    const locks = await openLocks({ redis: server.url });
    const working = locks.withLock('replaced', { ttlMs: TTL_MS }, async (lock) => {
      await server.command('SET', 'lock:{replaced}', 'other', 'PX', 60_000);
      const startedAt = performance.now();
      await until(() => lock.signal.aborted, { what: 'the holder knows' });
      expect(performance.now() - startedAt).toBeLessThan(TOLD_WITHIN_MS);
    });
    await expect(working).rejects.toMatchObject({ reason: 'stolen', outcome: { status: 'fulfilled' } });
    expect(await server.command('GET', 'lock:{replaced}')).toBe('other');
  });

  it('a holder whose key was taken by FLUSHALL knows of the loss within about a third of the ttl, and tokens go on growing [G14]', async () => {
    const own = await redisServer();
    const [locks, others] = [await openLocks({ redis: own.url }), await openLocks({ redis: own.url })];
    const before = await locks.acquire('flushed', { ttlMs: TTL_MS });
    await before.release();
    const { reason, afterMs } = await loses(locks, 'flushed', () => own.command('FLUSHALL'));
    expect(reason).toBe('expired');
    expect(afterMs).toBeLessThan(TOLD_WITHIN_MS);
    expect((await others.acquire('flushed')).fencingToken).toBeGreaterThan(before.fencingToken + 1);
  });

  it.each([
    ['deleted', ['DEL']],
    ['replaced', ['SET', 'a person', 'PX', '300']],
  ])(
    'a holder whose key was %s learns of the loss by the release also where that asks for the next call in the same step [G643]',
    async (what, [command, ...value]) => {
      const locks = await openLocks({ redis: server.url, cohortPasses: 0 });
      const lost: LockEvent[] = [];
      locks.events$.subscribe((event) => event.type === 'lost' && lost.push(event));
      const key = `${what} before others`;
      const lock = await locks.acquire(key);
      const waiting = locks.acquire(key);
      await server.command(command!, `lock:{${key}}`, ...value);
      expect(await lock.release()).toBe(false);
      expect(lost).toMatchObject([{ key, owner: lock.owner, reason: 'expired' }]);
      expect(await (await waiting).release()).toBe(true);
    },
  );

  it('a holder whose key was deleted a moment before its work ended learns of the loss by the release [G41]', async () => {
    const locks = await openLocks({ redis: server.url });
    const working = locks.withLock('at-the-end', () => server.command('DEL', 'lock:{at-the-end}'));
    await expect(working).rejects.toMatchObject({
      code: 'LOCK_LOST',
      reason: 'expired',
      outcome: { status: 'fulfilled', value: 1 },
    });
  });
});

describe('a holder whose Redis', () => {
  it('a holder whose Redis is stopped keeps the lock until its deadline, then loses it as unavailable, and leaves no key [G38]', async () => {
    const own = await redisServer();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200 });
    const { reason, afterMs } = await loses(locks, 'stopped', () => own.pause());
    expect(reason).toBe('unavailable');
    expect(afterMs).toBeLessThan(TTL_MS + 1_500);
    own.resume();
    await until(async () => (await own.keys('lock:{stopped}')).length === 0, { what: 'the key is gone' });
  });

  it('a holder whose Redis is stopped for less than the ttl does not lose the lock [G48]', async () => {
    const own = await redisServer();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 200 });
    const events: LockEvent[] = [];
    locks.events$.subscribe((event) => events.push(event));
    const lock = await locks.acquire('a-moment', { ttlMs: 2_400 });
    own.pause();
    await until(() => events.some(({ type }) => type === 'extension-failed'), { what: 'an extension has failed' });
    own.resume();
    const before = lock.remainingMs;
    await until(() => lock.remainingMs > before, { what: 'a later extension has succeeded' });
    expect(events.map(({ type }) => type)).not.toContain('lost');
    expect(await lock.release()).toBe(true);
  });
});

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

  it('a grant that arrives when nothing is left of its ttl is refused and undone [G6]', async () => {
    const { proxy, locks } = await heldUp();
    await server.resetCalls();
    proxy.hold();
    const acquiring = locks.acquire('late', { ttlMs: 300, waitMs: 0 });
    const refused = expect(acquiring).rejects.toThrow(/its answer took \d+ ms, but the lease is only 300 ms long/);
    await sleep(300);
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
    await sleep(700);
    proxy.release();
    const [again, slow] = await Promise.all(acquiring);
    expect(again!.isHeld).toBe(true);
    expect(slow!.remainingMs).toBeLessThanOrEqual(10_000 - 102 - 700 + 5);
    for (const lock of [again, slow]) expect(await lock!.release()).toBe(true);
    expect(await isFree('again')).toBe(true);
  });
});
