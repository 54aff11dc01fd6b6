import { inspect } from 'node:util';
import { LockLostError, LockUnavailableError } from '../../api/errors.js';
import type { Leadership, LeadershipEnd } from '../../api/leader.js';
import { quoted } from '../../api/printable.js';
import type { LockEngine } from '../locks/lock-engine.js';
import { LockHandle } from '../locks/lock-handle.js';
import { abort, sharedController } from '../time/notify.js';

/** Work of the leader, with its own handle of the leader's lock, which it releases. */
export type LeaderWork<T> = (lock: LockHandle) => Promise<T>;

/**
 * One term of this process as the leader: the lock, and the work under it. The first reason ends the term: its signal aborts at once, then its
 * work ends, and then the lock is released.
 */
export class Term implements Leadership {
  /** Settles with the reason when the term is over. */
  readonly over: Promise<LeadershipEnd>;
  readonly #ending = sharedController();
  readonly #running = new Set<Promise<unknown>>();
  #resolveOver!: (reason: LeadershipEnd) => void;
  #closed?: Promise<void>;

  constructor(
    private readonly lock: LockHandle,
    private readonly engine: LockEngine,
  ) {
    this.over = new Promise((resolve) => (this.#resolveOver = resolve));
    const { signal, closing } = lock;
    whenAborted(signal, () => this.#end((signal.reason as LockLostError).reason, signal.reason));
    whenAborted(closing, () => this.#end('closing', closing.reason));
  }

  get key(): string {
    return this.lock.key;
  }

  get term(): number {
    return this.lock.fencingToken;
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  get isHeld(): boolean {
    return this.lock.isHeld;
  }

  /** Whether it is not over, by the deadline of its lock. */
  get isOpen(): boolean {
    return this.isHeld && !this.signal.aborted;
  }

  assertHeld(): void {
    this.lock.assertHeld();
  }

  get lease(): LockHandle['lease'] {
    return this.lock.lease;
  }

  /** Ends the term while its lock is held. Does nothing if the term is over. */
  giveUp(reason: 'resigned' | 'failed'): void {
    const why = reason === 'resigned' ? 'this process resigned' : 'its work failed';
    const ended = `The leadership of ${quoted(this.key)} has ended because ${why}: end the work that runs under it.`;
    this.#end(reason, new LockUnavailableError(ended, this.key));
  }

  /** Runs work under the lock. The lock is not released before the work has ended. */
  run<T>(work: LeaderWork<T>): Promise<T> {
    const running = work(LockHandle.another(this.lease, this.engine));
    this.#running.add(running);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Called when the term is over: waits until its work has ended, and releases the lock. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    while (this.#running.size > 0) await Promise.allSettled(this.#running);
    await this.lock.release();
  }

  #end(reason: LeadershipEnd, error: unknown): void {
    if (this.signal.aborted) return;
    this.#resolveOver(reason);
    abort(this.#ending, error);
  }

  /** The fields for logs and messages, without internals. */
  toJSON(): { key: string; term: number | undefined; isHeld: boolean } {
    return { key: this.key, term: this.lease.fencingToken, isHeld: this.isHeld };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }
}

function whenAborted(signal: AbortSignal, call: () => void): void {
  if (signal.aborted) call();
  else signal.addEventListener('abort', call, { once: true });
}
