import { Subject } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { LockEvent } from '../../lib/api/events.js';
import { LockEngine } from '../../lib/core/engine/lock-engine.js';
import type { LockHandle } from '../../lib/core/lease/lock-handle.js';
import { RefusalGate } from '../../lib/core/waiting/refusal-gate.js';
import { Closing } from '../../lib/core/waiting/waiter.js';
import { randomOf } from '../support/random.js';
import { QueueStore, type Waiting } from './queue-store.js';

const KEY = 'key';
const STEPS = 120;
/** For each kind of lock and each kind of store. */
const SCHEDULES = Number(process.env.QUEUE_SCHEDULES ?? 40);

interface Call {
  id: number;
  ttlMs: number;
  settled: number;
}

/** One schedule: calls come, give up and release, commands are answered, messages come, or not, and time goes by. */
async function play(fair: boolean, waiting: Waiting, seed: number): Promise<Record<string, number>> {
  const random = randomOf(seed);
  const int = (count: number) => Math.floor(random() * count);
  const pick = <T>(list: readonly T[]): T => list[int(list.length)]!;
  vi.spyOn(Math, 'random').mockImplementation(random);
  const now = () => performance.now();
  const store = new QueueStore(waiting, random, now);
  const limits = {
    marginMs: pick([0, 0, 200]),
    maxWaiters: pick([3, 100]),
    cohortPasses: pick([0, 2, 100]),
    cohortMs: pick([100, 60_000]),
    fair,
    fairSlackMs: pick([0, 1]),
  };
  const events = new Subject<LockEvent>();
  const engine = new LockEngine({ backend: store.backend, now, limits, processName: 'host/1/random', events });
  const closing = new Closing();
  const calls: Call[] = [];
  const held: LockHandle[] = [];
  const granted: number[] = [];
  const tokens: number[] = [];
  const controllers: AbortController[] = [];
  const outcomes: Record<string, number> = {};

  const join = () => {
    const controller = random() < 0.3 ? new AbortController() : undefined;
    if (controller) controllers.push(controller);
    const call = { id: calls.length, ttlMs: pick([30_000, 30_000, 30_000, 5_000]), settled: 0 };
    calls.push(call);
    const waitMs = pick([0, 1 + int(40), 2_000, 60_000, 60_000]);
    const request = { ttlMs: call.ttlMs, waitMs, watchdog: random() < 0.8, signal: controller?.signal };
    const count = (outcome: string) => {
      call.settled++;
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    };
    engine.acquire(KEY, request, closing).then(
      (lock) => {
        count('granted');
        held.push(lock);
        granted.push(call.id);
        tokens.push(lock.lease.fencingToken ?? tokens.length);
      },
      (error: unknown) => count((error as { code?: string }).code ?? String(error)),
    );
  };
  const check = () => {
    expect(held.filter(({ isHeld }) => isHeld).length).toBeLessThanOrEqual(1);
    expect(calls.every(({ settled: times }) => times <= 1)).toBe(true);
    expect(store.asking).toBeLessThanOrEqual(1);
    expect(engine.waiting(KEY)).toBeLessThanOrEqual(limits.maxWaiters + 1);
  };
  const release = (lock: LockHandle) => {
    held.splice(held.indexOf(lock), 1);
    void lock.release();
  };

  for (let step = 0; step < STEPS; step++) {
    const chance = random();
    store.failing = step % 40 > 30 ? 0.5 : 0;
    if (chance < 0.2) join();
    else if (chance < 0.24 && controllers.length > 0) pick(controllers).abort('gone');
    else if (chance < 0.7) for (let each = int(4); each >= 0; each--) store.next();
    else if (chance < 0.85 && held.length > 0) release(pick(held));
    else if (chance < 0.87) store.isListening = false;
    else if (chance < 0.875) store.loseQueue();
    else if (chance < 0.885 && held.length > 0) engine.leases.lose(pick(held).lease, 'stolen');
    else await vi.advanceTimersByTimeAsync(pick([1, 5, 50, 300, 1_000, 6_000]));
    if (random() < 0.7) await settled();
    check();
  }

  // Everybody is served, or gives up, and nothing is left.
  store.failing = 0;
  for (let turn = 0; turn < 3_000 && (calls.some((call) => call.settled === 0) || held.length > 0); turn++) {
    for (const lock of [...held]) release(lock);
    while (store.due > 0 && random() < 0.9) store.next();
    await settled();
    check();
    if (store.due === 0) await vi.advanceTimersByTimeAsync(100);
  }
  for (let turn = 0; turn < 20 && store.due > 0; turn++) {
    while (store.due > 0) store.next();
    await settled();
  }
  expect(calls.map(({ settled: times }) => times)).toEqual(calls.map(() => 1));
  expect([engine.waiting(KEY), store.places]).toEqual([0, 0]);
  engine.leases.end(); // the leases that were lost a moment ago are released
  while (store.due > 0) store.next();
  expect(engine.size).toBe(0);
  for (const ordered of [tokens, granted]) {
    expect(ordered).toEqual([...ordered].sort((one, other) => one - other));
  }
  return outcomes;
}

/** Lets run what waits for no timer. */
async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe('the queue of a key, whatever happens in whatever order', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    vi.spyOn(RefusalGate.prototype, 'settle').mockImplementation((_reason, settle) => settle());
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  const cases: [string, Waiting, boolean][] = [
    ['a lock', 'hands over', false],
    ['a lock', 'wakes', false],
    ['a lock', 'has no queue', false],
    ['a fair lock', 'hands over', true],
  ];

  it.each(cases)(
    'keeps %s to its holder, settles each waiter once and leaves nothing behind (a store that %s)',
    async (_name, waiting, fair) => {
      const total: Record<string, number> = {};
      for (let seed = 1; seed <= SCHEDULES; seed++) {
        const outcomes = await play(fair, waiting, seed);
        for (const [outcome, times] of Object.entries(outcomes)) total[outcome] = (total[outcome] ?? 0) + times;
      }
      expect(Object.keys(total).sort()).toEqual(['LOCK_CONTENDED', 'LOCK_UNAVAILABLE', 'gone', 'granted']);
    },
    120_000,
  );
});
