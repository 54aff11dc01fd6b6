import { inspect } from 'node:util';
import { LockOptionsError } from '../../api/errors.js';
import type { Lock, LockSet } from '../../api/lock.js';
import { quoted } from '../../api/printable.js';
import { findByKey } from '../keys/scope.js';
import { abort, sharedController } from '../time/notify.js';
import type { LockHandle } from './lock-handle.js';

/** What a call holds: one lock, or several locks that it acquired at once. */
export type Held = LockHandle | LockSetHandle;

/** The handles of several locks. Each of them is extended and released separately. */
export class LockSetHandle implements LockSet {
  #signal?: AbortSignal;
  #closing?: AbortSignal;
  /** Aborts when the set is released. Locks that an outer call also holds stay held. */
  #ended?: AbortController;

  /** @param locks at least one, in the order in which they were acquired */
  constructor(readonly locks: readonly LockHandle[]) {
    for (const lock of locks) lock.isPartOfSet = true;
  }

  get keys(): readonly string[] {
    return this.locks.map(({ key }) => key);
  }

  get(key: string): Lock {
    const lock = findByKey(key, (fits) => this.locks.find((each) => fits(each.key)));
    if (lock) return lock;
    throw new LockOptionsError(
      `get(${quoted(key)}) was called on the locks ${listed(this.keys)}: pass one of these keys.`,
    );
  }

  get signal(): AbortSignal {
    const signals = this.locks.map(({ signal }) => signal); // reading a signal may abort it
    return (this.#signal ??= this.#anyOf(signals));
  }

  get closing(): AbortSignal {
    const signals = this.locks.map(({ closing }) => closing);
    return (this.#closing ??= this.#anyOf(signals));
  }

  get isHeld(): boolean {
    return this.locks.every(({ isHeld }) => isHeld);
  }

  get remainingMs(): number {
    return Math.min(...this.locks.map(({ remainingMs }) => remainingMs));
  }

  assertHeld(): void {
    for (const lock of this.locks) lock.assertHeld();
  }

  async extend(ttlMs?: number): Promise<void> {
    const outcomes = await Promise.allSettled(this.locks.map((lock) => lock.extend(ttlMs)));
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  /** Its call may hold the locks until then, by the clock of the service. Called once. */
  endBy(until: number): void {
    for (const lock of this.locks) lock.endBy(until);
  }

  async release(): Promise<boolean> {
    const released = await Promise.all(this.locks.map((lock) => lock.release()));
    this.#ended?.abort();
    return released.every(Boolean);
  }

  /** The fields for logs and messages, without internals. */
  toJSON(): object {
    const { locks, isHeld, remainingMs } = this;
    return { locks: locks.map((lock) => lock.toJSON()), isHeld, remainingMs };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Not `AbortSignal.any`: Node.js 20 never frees its signals that have a listener, and most locks end without an abort. */
  #anyOf(signals: readonly AbortSignal[]): AbortSignal {
    const any = sharedController();
    this.#ended ??= sharedController();
    for (const signal of signals) {
      const pass = () => abort(any, signal.reason);
      if (signal.aborted) pass();
      else signal.addEventListener('abort', pass, { once: true, signal: this.#ended.signal });
    }
    return any.signal;
  }
}

/** `"a", "b"`. */
export function listed(keys: readonly string[]): string {
  return keys.map(quoted).join(', ');
}
