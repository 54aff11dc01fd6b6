import { inspect } from 'node:util';
import { LockLostError, LockUnavailableError } from '../../api/errors.js';
import type { Leadership, LeadershipEnd } from '../../api/leader.js';
import { quoted } from '../../api/printable.js';
import type { LockEngine } from '../locks/lock-engine.js';
import { LockHandle } from '../locks/lock-handle.js';
import { abort, sharedController } from '../time/notify.js';

/** Work of the leader, with a handle of its own on the leader's lock, which it releases. */
export type LeaderWork<T> = (lock: LockHandle) => Promise<T>;

/**
 * One term of this process as the leader: the lock, and the work that runs under it. It is over once, for the first reason; its
 * signal aborts in that line, and all else follows later: the work ends, then the lock is released.
 */
export class Term implements Leadership {
  /** Settles when the term is over, with the reason. */
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

  /** Whether it is not over: the deadline of its lock is looked at now. */
  get isOpen(): boolean {
    return this.isHeld && !this.signal.aborted;
  }

  assertHeld(): void {
    this.lock.assertHeld();
  }

  get lease(): LockHandle['lease'] {
    return this.lock.lease;
  }

  /** Ends the term while its lock is held. Does nothing when it is over. */
  giveUp(reason: 'resigned' | 'failed'): void {
    const why = reason === 'resigned' ? 'this process resigned' : 'its work failed';
    const ended = `The leadership of ${quoted(this.key)} has ended, as ${why}: what runs under it should end, too.`;
    this.#end(reason, new LockUnavailableError(ended, this.key));
  }

  /** Runs work under the lock, which is not released before that has ended. */
  run<T>(work: LeaderWork<T>): Promise<T> {
    const running = work(LockHandle.another(this.lease, this.engine));
    this.#running.add(running);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Called when it is over: waits until its work has ended, and releases the lock. */
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

  /** The fields that are logged or sent: not its internals. */
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
