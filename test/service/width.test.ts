import { Subject } from 'rxjs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { processName } from '../../lib/compose/process-name.js';
import type { LockEvent } from '../../lib/api/events.js';
import type { AcquireOptions } from '../../lib/api/options.js';
import { LockEngine } from '../../lib/core/engine/lock-engine.js';
import { resolveOptions } from '../../lib/compose/redis-lock-options.js';
import { Closing } from '../../lib/core/waiting/waiter.js';
import { permitStore } from '../support/permit-store.js';
import { until } from '../support/until.js';

const KEY = 'permits';
/** Three holders at a time: no kind of this library yet, but one that its engine must be able to carry. */
const THREE = { width: 3, capacity: 3 };

/** Engines of several processes before one store of three permits for each key. */
function setUp(settings = {}) {
  const { backend, state } = permitStore(THREE.capacity);
  const open = () => {
    const events = new Subject<LockEvent>();
    const seen: LockEvent[] = [];
    events.subscribe((event) => seen.push(event));
    const limits = resolveOptions({ memory: true, ...settings });
    const parts = { backend, now: () => performance.now(), limits, processName: processName(), events, kind: THREE };
    const engine = new LockEngine(parts);
    onTestFinished(() => engine.leases.end());
    const closing = new Closing();
    const acquire = (options: Partial<AcquireOptions> = {}) =>
      engine.acquire(KEY, { ttlMs: 30_000, waitMs: 20_000, watchdog: true, ...options }, closing);
    return { engine, acquire, closing, seen };
  };
  return { state, open, ...open() };
}

/** Keeps the attempts of a store in flight until it is called. */
function holdAnswers(state: { hold: Promise<void> }): () => void {
  let answer!: () => void;
  state.hold = new Promise((resolve) => (answer = resolve));
  return answer;
}

describe('a lock that three holders may have', () => {
  it('is asked for by three contenders of one process at a time, and no more', async () => {
    const { acquire, state } = setUp();
    const answer = holdAnswers(state);
    const calls = Array.from({ length: 5 }, () => acquire());
    expect(state.asking).toBe(3);
    answer();
    const locks = await Promise.all(calls.slice(0, 3));
    expect(locks.map(({ isHeld }) => isHeld)).toEqual([true, true, true]);
    expect([state.holders(KEY), state.attempts, state.mostAsking]).toEqual([3, 3, 3]);
    for (const lock of locks) await lock.release();
    for (const lock of await Promise.all(calls.slice(3))) await lock.release();
    expect([state.holders(KEY), state.mostAsking]).toEqual([0, 3]);
  });

  it('lets the fourth call wait, and gives it the turn of the first that releases', async () => {
    const { acquire, engine, state } = setUp();
    const locks = await Promise.all([acquire(), acquire(), acquire()]);
    const fourth = acquire();
    expect([engine.waiting(KEY), state.attempts]).toEqual([1, 3]);
    await locks[1]!.release();
    const lock = await fourth;
    expect([locks[0]!.isHeld, lock.isHeld, locks[2]!.isHeld, state.holders(KEY)]).toEqual([true, true, true, 3]);
    expect(lock.owner).not.toBe(locks[1]!.owner); // without tokens nothing is passed on
    for (const each of [locks[0]!, locks[2]!, lock]) expect(await each.release()).toBe(true);
    expect([engine.size, state.holders(KEY)]).toEqual([0, 0]);
  });

  it('is never held by more than three calls of several processes', async () => {
    const { open, state } = setUp();
    const processes = [open(), open(), open()];
    let [inside, most] = [0, 0];
    const work = async ({ acquire }: ReturnType<typeof open>) => {
      const lock = await acquire();
      most = Math.max(most, ++inside);
      await new Promise((resolve) => setImmediate(resolve));
      inside--;
      expect(await lock.release()).toBe(true);
    };
    await Promise.all(processes.flatMap((process) => Array.from({ length: 20 }, () => work(process))));
    expect([most, state.holders(KEY)]).toEqual([3, 0]);
    for (const { engine } of processes) expect(engine.size).toBe(0);
  });

  it('refuses a call that tries once when all are held here, and grants one that was released since', async () => {
    const { acquire } = setUp();
    const locks = await Promise.all([acquire(), acquire(), acquire()]);
    await expect(acquire({ waitMs: 0 })).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
      holder: { owner: locks[0]!.owner },
    });
    await locks[0]!.release();
    expect((await acquire({ waitMs: 0 })).isHeld).toBe(true);
  });

  it('is asked for again after a waiter has given up, although it was seen to be taken', async () => {
    const { acquire, open } = setUp();
    const others = await Promise.all([1, 2].map(() => open().acquire()));
    const own = await acquire();
    await expect(acquire({ waitMs: 20 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    await others[0]!.release();
    expect((await acquire({ waitMs: 0 })).isHeld).toBe(true);
    expect(own.isHeld).toBe(true);
  });

  it('counts as many calls as may be granted at once as not waiting yet', async () => {
    const { acquire } = setUp({ maxWaiters: 1 });
    const calls = Array.from({ length: 5 }, () => acquire());
    await expect(calls[4]).rejects.toThrow(/maxWaiters/);
    const locks = await Promise.all(calls.slice(0, 3));
    await locks[0]!.release();
    expect((await calls[3]!).isHeld).toBe(true);
  });

  it('goes to the next waiter when one of three leases is lost, and leaves the other two alone', async () => {
    const { acquire, engine, seen, state } = setUp();
    const locks = await Promise.all([acquire(), acquire({ ttlMs: 100, watchdog: false }), acquire()]);
    const fourth = acquire();
    await until(() => locks[1]!.signal.aborted, { what: 'the second lease has ended' });
    const lock = await fourth;
    expect([locks[0]!, locks[2]!, lock].map(({ isHeld }) => isHeld)).toEqual([true, true, true]);
    expect(seen.filter(({ type }) => type === 'lost')).toMatchObject([{ owner: locks[1]!.owner, reason: 'expired' }]);
    await until(() => state.holders(KEY) === 3, { what: 'only what is held here is held in the store' });
    for (const each of [locks[0]!, locks[2]!, lock]) await each.release();
    expect(engine.size).toBe(0);
  });

  it('is lost to all three holders when it is taken by force', async () => {
    const { acquire, engine, seen } = setUp();
    const locks = await Promise.all([acquire(), acquire(), acquire()]);
    expect(await engine.forceRelease(KEY)).toBe(true);
    expect(locks.map(({ isHeld }) => isHeld)).toEqual([false, false, false]);
    await until(() => seen.filter(({ type }) => type === 'lost').length === 3, { what: 'each loss is an event' });
    expect((await acquire()).isHeld).toBe(true);
  });

  it('is asked for on behalf of the next call when the first one aborts during its attempt', async () => {
    const { acquire, state } = setUp();
    const answer = holdAnswers(state);
    const controller = new AbortController();
    const calls = [acquire({ signal: controller.signal }), acquire(), acquire(), acquire()];
    controller.abort('gone');
    await expect(calls[0]).rejects.toBe('gone');
    answer();
    await Promise.all(calls.slice(1));
    expect([state.holders(KEY), state.attempts]).toEqual([3, 3]);
  });

  it('is given back when the attempt of an aborted call wins, and no other call waits', async () => {
    const { acquire, engine, state } = setUp();
    const answer = holdAnswers(state);
    const controller = new AbortController();
    const calls = [acquire({ signal: controller.signal }), acquire()];
    controller.abort('gone');
    await expect(calls[0]).rejects.toBe('gone');
    answer();
    const lock = await calls[1]!;
    await until(() => state.asking === 0 && state.holders(KEY) === 1, { what: 'one of two permits is given back' });
    await lock.release();
    expect([engine.size, state.holders(KEY)]).toEqual([0, 0]);
  });

  it('refuses the call of a failed attempt, and grants those that came later', async () => {
    const { acquire, state } = setUp();
    const answers = [holdAnswers(state)];
    const first = acquire();
    answers.push(holdAnswers(state));
    const rest = [acquire(), acquire(), acquire()];
    state.isDown = true;
    answers[0]!();
    await expect(first).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    state.isDown = false;
    answers[1]!();
    await Promise.all(rest);
    expect([state.holders(KEY), state.attempts]).toEqual([3, 4]);
  });

  it('refuses calls that wait when the application closes, and grants what is free until it has closed', async () => {
    const { acquire, engine, closing } = setUp();
    const locks = await Promise.all([acquire(), acquire(), acquire()]);
    const fourth = acquire();
    closing.phase = 'waiting-ends';
    engine.refuseWaiting(closing);
    await expect(fourth).rejects.toThrow('The application is closing');
    await locks[0]!.release();
    expect((await acquire()).isHeld).toBe(true);
    await expect(acquire()).rejects.toThrow('The application is closing');
    closing.phase = 'closed';
    expect(() => acquire()).toThrow('The application is closing');
    engine.leases.end();
    expect(locks.map(({ isHeld }) => isHeld)).toEqual([false, false, false]);
    expect(engine.size).toBe(0);
  });
});
