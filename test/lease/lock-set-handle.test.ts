import { getEventListeners } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { LockSetHandle } from '../../lib/core/lease/lock-set-handle.js';
import type { LockHandle } from '../../lib/core/lease/lock-handle.js';
import { until } from '../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** A handle that is lost, and told that the application closes, when the test says so. */
class StandIn {
  readonly loss = new AbortController();
  readonly end = new AbortController();

  constructor(
    readonly key: string,
    readonly leaseMs: number,
  ) {}

  get signal() {
    return this.loss.signal;
  }

  get closing() {
    return this.end.signal;
  }

  get isHeld() {
    return !this.loss.signal.aborted;
  }

  get remainingMs() {
    return this.isHeld ? this.leaseMs : 0;
  }

  assertHeld() {
    this.loss.signal.throwIfAborted();
  }

  async release() {
    return true;
  }
}

function setOfThree() {
  const locks = [new StandIn('a', 30), new StandIn('b', 10), new StandIn('c', 20)];
  return { locks, set: new LockSetHandle(locks as unknown as LockHandle[]) };
}

describe('the handle of a set of locks', () => {
  it.each([0, 1, 2])('says that the set is lost when the lock at %s is', (at) => {
    const { locks, set } = setOfThree();
    const { signal } = set;
    set.assertHeld();
    expect([signal.aborted, set.isHeld]).toEqual([false, true]);
    const reason = new Error('lost');
    locks[at]!.loss.abort(reason);
    expect([signal.reason, set.isHeld]).toEqual([reason, false]);
    expect(() => set.assertHeld()).toThrow(reason);
  });

  it.each([0, 1, 2])('asks the work to end when the lock at %s does', (at) => {
    const { locks, set } = setOfThree();
    const { closing } = set;
    locks[at]!.end.abort();
    expect(closing.aborted).toBe(true);
    expect(set.closing).toBe(closing);
  });

  it('is freed with its locks, whoever still listens to its signals, and leaves no listener at those that go on', async () => {
    const { locks, set } = setOfThree();
    set.signal.addEventListener('abort', () => {});
    set.closing.addEventListener('abort', () => {});
    await set.release();
    for (const { signal, closing } of locks) {
      expect(getEventListeners(signal, 'abort')).toEqual([]);
      expect(getEventListeners(closing, 'abort')).toEqual([]);
    }

    const signals = Array.from({ length: 20 }, () => {
      const { signal } = setOfThree().set;
      signal.addEventListener('abort', () => {});
      return new WeakRef(signal);
    });
    const freed = () => {
      collectGarbage();
      return signals.filter((each) => each.deref() === undefined).length;
    };
    await until(() => freed() >= 15, { what: 'the signals are freed' });
  });

  it('runs for as long as the shortest of its leases', () => {
    const { locks, set } = setOfThree();
    expect(set.remainingMs).toBe(10);
    locks[0]!.loss.abort();
    expect(set.remainingMs).toBe(0);
  });
});
