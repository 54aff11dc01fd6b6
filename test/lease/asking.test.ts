import { performance } from 'node:perf_hooks';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { LockEvent, LockService } from 'nest-redis-lock';
import { LockHandle } from '../../lib/core/lease/lock-handle.js';
import { MemoryBackend } from '../../lib/stores/memory/memory.backend.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

const TTL_MS = 10_000;
const KEY = 'overdue'; // other files may have left locks in memory

afterEach(() => {
  vi.restoreAllMocks();
});

/** A lock whose time is over, which nothing in this process has found out yet, and all that happens from then on. */
async function overdue(locks: LockService) {
  const lock = await locks.acquire(KEY, { ttlMs: TTL_MS });
  if (!(lock instanceof LockHandle)) throw new Error('This is no lock of the library.');
  const { signal } = lock;
  const happened: string[] = [];
  locks.events$.subscribe((event: LockEvent) => happened.push(`event: ${event.type}`));
  for (const name of ['acquire', 'extend', 'release'] as const) {
    const send = MemoryBackend.prototype[name] as (...args: unknown[]) => void;
    vi.spyOn(MemoryBackend.prototype, name).mockImplementation(function (this: MemoryBackend, ...args: unknown[]) {
      const [of] = args as [{ key?: string; grant?: { key: string } }];
      if ((of.key ?? of.grant?.key) === KEY) happened.push(`sent: ${name}`);
      send.apply(this, args);
    });
  }
  const real = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => real() + 2 * TTL_MS);
  return { lock, signal, happened };
}

const QUESTIONS: [string, (lock: LockHandle) => unknown, answer: unknown][] = [
  ['isHeld', (lock) => lock.isHeld, false],
  ['remainingMs', (lock) => lock.remainingMs, 0],
  ['signal', (lock) => lock.signal.aborted, true],
  ['assertHeld()', (lock) => codeOf(() => lock.assertHeld()), 'LOCK_LOST'],
  ['toJSON()', (lock) => lock.toJSON().isHeld, false],
  ['state', ({ lease }) => lease.checkState(), 'lost'],
  ['isLost', ({ lease }) => lease.checkLost(), true],
  ['isAlive', ({ lease }) => lease.checkAlive(), false],
];

function codeOf(run: () => void): unknown {
  try {
    run();
    return undefined;
  } catch (error) {
    return (error as { code: unknown }).code;
  }
}

describe('a lock whose time is over', () => {
  it.each(QUESTIONS)(
    'is lost in the line that asks for %s, which emits, sends and queues nothing; all of that follows, once',
    async (_, ask, answer) => {
      const locks = await openLocks({ memory: true });
      const { lock, signal, happened } = await overdue(locks);
      const sizeBefore = locks.size;
      const waiting = locks.acquire(KEY, { ttlMs: TTL_MS }); // behind it
      expect(ask(lock)).toBe(answer);
      expect(ask(lock)).toBe(answer);
      expect(signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'stalled' });
      expect(happened).toEqual([]);
      expect(locks.size).toBe(sizeBefore);

      const next = await waiting;
      await until(() => happened.includes('sent: release'), { what: 'it has been released afterwards' });
      expect(happened).toEqual(['sent: acquire', 'event: lost', 'event: acquired', 'sent: release']);
      expect(next.isHeld).toBe(true);
    },
  );

  it('does not stand in the way of a call that follows in the line that found it lost', async () => {
    const locks = await openLocks({ memory: true });
    const { lock } = await overdue(locks);
    const isHeld = [lock.isHeld];
    const next = locks.tryAcquire(KEY);
    expect(isHeld).toEqual([false]);
    expect(await next).toMatchObject({ isHeld: true });
  });

  it('can be asked for again by a listener of its signal', async () => {
    const locks = await openLocks({ memory: true });
    const { lock, signal } = await overdue(locks);
    const next = new Promise((resolve) => signal.addEventListener('abort', () => resolve(locks.tryAcquire(KEY))));
    expect(lock.isHeld).toBe(false);
    expect(await next).toMatchObject({ isHeld: true });
  });

  it('is not asked to end when the application closes in the line that found it lost', async () => {
    const locks = await openLocks({ memory: true });
    const { lock } = await overdue(locks);
    const { closing } = lock;
    expect(lock.isHeld).toBe(false);
    locks.onModuleDestroy();
    expect(closing.aborted).toBe(false);
  });

  it('ends the waiting of an application that closes meanwhile', async () => {
    const locks = await openLocks({ memory: true, shutdownTimeoutMs: 60_000 });
    const lock = await locks.acquire(KEY, { ttlMs: TTL_MS });
    const closed = locks.beforeApplicationShutdown();
    await new Promise((resolve) => setImmediate(resolve)); // it waits
    const real = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => real() + 2 * TTL_MS);
    expect(lock.isHeld).toBe(false);
    await closed;
    expect(lock.signal.reason).toMatchObject({ reason: 'stalled' });
  });

  it('does not keep the application from closing, and its loss is reported once', async () => {
    const locks = await openLocks({ memory: true, shutdownTimeoutMs: 60_000 });
    const { lock, happened } = await overdue(locks);
    expect(lock.isHeld).toBe(false);
    await locks.onApplicationShutdown();
    expect(happened).toEqual(['event: lost', 'sent: release']);
    expect(locks.size).toBe(0);
  });
});

describe('a lock that is still held when the application ends it', () => {
  it('is lost, and its release is sent, before the end returns', async () => {
    const locks = await openLocks({ memory: true });
    const lock = await locks.acquire('held');
    const sent = vi.spyOn(MemoryBackend.prototype, 'release');
    const closing = locks.beforeApplicationShutdown(); // waits for nobody
    await closing;
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'shutdown' });
    expect(sent.mock.calls.filter(([{ key }]) => key === 'held')).toHaveLength(1);
    expect(locks.size).toBe(0);
  });
});
