import { AsyncLocalStorage } from 'node:async_hooks';
import { LockOptionsError } from '../../api/errors.js';
import type { Lease } from '../locks/lease.js';
import type { LockHandle } from '../locks/lock-handle.js';
import { listed, LockSetHandle } from '../locks/lock-set-handle.js';
import type { Lock } from '../../api/lock.js';
import { quoted } from '../../api/printable.js';
import { findByKey } from '../keys/scope.js';
import type { Closing } from '../locks/waiter.js';

interface Frame {
  /** Of the service whose lock it is. */
  readonly of: LockContext;
  /** Undefined once it was found released. */
  lock?: LockHandle;
  lease: Lease;
  /** Of which the lock is one. */
  set?: LockSetHandle;
  outer: Frame | undefined;
}

/** Of all services of the process, so that what observes a call can be run outside of all locks that the call holds. */
const context = new AsyncLocalStorage<Frame | undefined>();

/** The locks of one service that the running call holds, by its async context: the innermost first. */
export class LockContext {
  /** @param shutdown that of the application, which all its services share */
  constructor(private readonly shutdown: Readonly<Record<'newcomers' | 'holders', Closing>>) {}

  /**
   * Runs what observes a call: in the async context of that call, but outside of its locks. A lock that the observer asks for
   * is held by another, as far as it is concerned.
   * @param observe gets what runs the observed work under the locks again
   */
  static beside<R>(observe: (under: <T>(work: () => T) => T) => R): R {
    const frame = context.getStore();
    return context.run(undefined, observe, (work) => context.run(frame, work));
  }

  run<T, Held extends LockHandle | LockSetHandle>(held: Held, work: (held: Held) => T): T {
    if (!(held instanceof LockSetHandle)) {
      return context.run({ of: this, lock: held, lease: held.lease, outer: innermost() }, work, held);
    }
    const frame = held.locks.reduce<Frame | undefined>(
      (outer, lock) => ({ of: this, lock, lease: lock.lease, set: held, outer }),
      innermost(),
    );
    return context.run(frame, work, held);
  }

  /** Whether this call runs under a handle of this lease that is not released, be the lease held or lost. */
  isUnder(lease: Lease): boolean {
    return this.#find((frame) => frame.lease.current === lease && frame.lock?.isReleased === false) !== undefined;
  }

  /**
   * The innermost lock that is not released yet, held or lost; with a key, the innermost of that key, given with or without its scope.
   * @throws LockOptionsError when there is none, or several were acquired at once and none is named
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
      `current() was called outside of ${which}: call it from work under withLock or @Locked, withPermits or @Limited. If it was, that work ` +
        'had already returned: is an await missing?',
    );
  }

  /** All leases that this call holds now, each once, the outermost first; undefined where there are none. */
  heldLeases(): readonly Lease[] | undefined {
    let frame = context.getStore();
    if (!frame) return undefined;
    const leases: Lease[] = [];
    for (; frame; frame = frame.outer) if (frame.of === this && holds(frame)) leases.push(frame.lease.current);
    return leases.length > 0 ? [...new Set(leases.reverse())] : undefined;
  }

  /** The closing that applies to this call. One that runs under a lock of any service of the application may need more to its end. */
  get closing(): Closing {
    const { shutdown } = this;
    for (let frame = context.getStore(); frame; frame = frame.outer)
      if (frame.of.shutdown === shutdown && holds(frame)) return shutdown.holders;
    return shutdown.newcomers;
  }

  #find(fits: (frame: Frame) => boolean): Frame | undefined {
    for (let frame = context.getStore(); frame; frame = frame.outer) if (frame.of === this && fits(frame)) return frame;
    return undefined;
  }
}

/** Whether the call of this frame holds its lock. One that has returned does not, though calls beside it may share the lease. */
function holds({ lock, lease }: Frame): boolean {
  return lock?.isReleased === false && lease.current.checkAlive();
}

/**
 * The innermost frame that still matters, of any service. A job that schedules its next run from within would otherwise keep all
 * earlier runs alive: by their frames, and by the promises of their releases, which Node 20 ties to the frame they were made in.
 */
function innermost(): Frame | undefined {
  let frame = context.getStore();
  for (; frame; frame = frame.outer) {
    if (frame.lock?.isReleased) frame.lock = undefined;
    if (frame.lock !== undefined) return frame;
  }
  return undefined;
}
