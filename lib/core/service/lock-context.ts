import { AsyncLocalStorage } from 'node:async_hooks';
import { LockOptionsError } from '../../api/errors.js';
import type { Lease } from '../locks/lease.js';
import type { LockHandle } from '../locks/lock-handle.js';
import { listed, LockSetHandle } from '../locks/lock-set-handle.js';
import type { Lock } from '../../api/lock.js';
import { quoted } from '../../api/printable.js';
import { findByKey } from '../keys/scope.js';
import type { Closing } from '../locks/waiter.js';

/** A lock that the running call holds, in its async context. */
interface Frame {
  readonly context: LockContext;
  /** Undefined once it was found released. */
  lock?: LockHandle;
  /** The set that the lock is part of. */
  set?: LockSetHandle;
  outer: Frame | undefined;
}

/** The innermost frame of the running call. All services share it, so that observers can run outside of all locks of a call. */
const context = new AsyncLocalStorage<Frame | undefined>();

/** The locks of one service that the running call holds, by its async context. */
export class LockContext {
  /** @param shutdown the shutdown of the application, which all its services share */
  constructor(private readonly shutdown: Readonly<Record<'newcomers' | 'holders', Closing>>) {}

  /**
   * Runs an observer in the async context of a call, but outside of its locks. For the observer, another call holds these locks.
   * @param observe gets a function that runs the observed work under the locks again
   */
  static outside<R>(observe: (under: <T>(work: () => T) => T) => R): R {
    const frame = context.getStore();
    return context.run(undefined, observe, (work) => context.run(frame, work));
  }

  run<T, Held extends LockHandle | LockSetHandle>(held: Held, work: (held: Held) => T): T {
    if (!(held instanceof LockSetHandle)) {
      return context.run({ context: this, lock: held, outer: innermost() }, work, held);
    }
    const frame = held.locks.reduce<Frame | undefined>(
      (outer, lock) => ({ context: this, lock, set: held, outer }),
      innermost(),
    );
    return context.run(frame, work, held);
  }

  /** Whether this call runs under an unreleased handle of this lease, even if the lease is lost. */
  isUnder(lease: Lease): boolean {
    return this.#find(({ lock }) => lock?.lease === lease && !lock.isReleased) !== undefined;
  }

  /**
   * The innermost lock that is not released, even if it is lost. With a key, the innermost lock of the key, with or without its scope.
   * @throws LockOptionsError if there is none, or if several locks were acquired at once and no key is given
   */
  current(key?: string): Lock {
    const find = (fits: (key: string) => boolean) =>
      this.#find(({ lock }) => lock !== undefined && !lock.isReleased && fits(lock.key));
    const frame = key === undefined ? find(() => true) : findByKey(key, find);
    if (frame?.set && key === undefined) {
      throw new LockOptionsError(
        `current() was called under several locks: name one of ${listed(frame.set.keys)}, as in current(${quoted(frame.lock!.key)}).`,
      );
    }
    if (frame) return frame.lock!.current;
    const which = key === undefined ? 'any lock' : `the lock ${quoted(key)}`;
    throw new LockOptionsError(
      `current() was called outside of ${which}: call it from work under withLock or @Locked, withPermits or @Limited. If it was called there, the work ` +
        'had already returned: is an await missing?',
    );
  }

  /** All leases that this call holds now, each once, the outermost first; undefined if there are none. */
  heldLeases(): readonly Lease[] | undefined {
    let frame = context.getStore();
    if (!frame) return undefined;
    const leases: Lease[] = [];
    for (; frame; frame = frame.outer) if (frame.context === this && holds(frame)) leases.push(frame.lock.lease);
    return leases.length > 0 ? [...new Set(leases.reverse())] : undefined;
  }

  /** The closing of this call. A call that runs under a lock may need more locks to finish. */
  get closing(): Closing {
    const { shutdown } = this;
    for (let frame = context.getStore(); frame; frame = frame.outer)
      if (frame.context.shutdown === shutdown && holds(frame)) return shutdown.holders;
    return shutdown.newcomers;
  }

  #find(fits: (frame: Frame) => boolean): Frame | undefined {
    for (let frame = context.getStore(); frame; frame = frame.outer)
      if (frame.context === this && fits(frame)) return frame;
    return undefined;
  }
}

/** Whether the call of this frame still holds its lock. Other calls may hold the lease although this call has returned. */
function holds(frame: Frame): frame is Frame & { lock: LockHandle } {
  const { lock } = frame;
  return lock?.isReleased === false && lock.lease.checkAlive();
}

/**
 * Finds the innermost frame of any service whose lock is not released. It leaves out and clears released ones: otherwise a job that schedules its
 * next run would keep all earlier runs alive, through their frames, and in Node.js 20 also through the promises of their releases.
 */
function innermost(): Frame | undefined {
  let frame = context.getStore();
  for (; frame; frame = frame.outer) {
    if (frame.lock?.isReleased) frame.lock = undefined;
    if (frame.lock !== undefined) return frame;
  }
  return undefined;
}
