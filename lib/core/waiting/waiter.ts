import type { Lease } from '../lease/lease.js';
import type { LockHandle } from '../lease/lock-handle.js';
import type { Linked, LinkedList } from '../time/linked-list.js';
import { onAbort } from './abort-listener.js';
import type { Interruption } from './interruption.js';

/** What one call asks for. */
export interface WaiterTerms {
  ttlMs: number;
  waitMs: number;
  watchdog: boolean;
  /** The caller's: its reason is what the call rejects with. */
  signal?: AbortSignal;
}

/** Where a waiter stands. */
export interface WaiterQueue {
  /** Takes it out: it gives up for this reason, or because its time is over. */
  giveUp(waiter: Waiter, reason?: unknown): void;
}

/** What becomes of calls that want locks. Is told while the queue is at work: what it does about it must wait until then. */
export interface Callers {
  now(): number;
  /** @returns what the call gets */
  granted(waiter: Waiter, lease: Lease): LockHandle | Promise<LockHandle>;
  /** @param reject lets the call know */
  refused(waiter: Waiter, reason: unknown, reject: () => void): void;
}

/** A function of its own, as a closure for each waiter is memory that lives as long as it waits. */
function isOver(queue: WaiterQueue, waiter: Waiter): void {
  queue.giveUp(waiter);
}

/** One call that wants a lock: it is granted a lease, refused, or gives up. */
export class Waiter implements Linked<Waiter> {
  readonly startedAt: number;
  /** What the call waits for. */
  readonly lock: Promise<LockHandle>;
  list?: LinkedList<Waiter>;
  next?: Waiter;
  previous?: Waiter;
  #resolve!: (lock: LockHandle | Promise<LockHandle>) => void;
  #reject!: (reason: unknown) => void;
  #timer?: NodeJS.Timeout;
  #queue?: WaiterQueue;
  #isSettled = false;
  #stopListening?: () => void;

  /** @throws the reason of a signal that is aborted already */
  constructor(
    readonly terms: WaiterTerms,
    /** When its application closes. */
    readonly interruption: Interruption,
    readonly key: string,
    private readonly callers: Callers,
  ) {
    terms.signal?.throwIfAborted();
    this.startedAt = callers.now();
    this.lock = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Whether it was granted, refused, or gave up. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  get waitedMs(): number {
    return this.callers.now() - this.startedAt;
  }

  /** Until the deadline; never negative. */
  get remainingMs(): number {
    return Math.max(0, this.terms.waitMs - this.waitedMs);
  }

  /** Whether the call does not wait at all, but tries once. */
  get triesOnce(): boolean {
    return this.terms.waitMs === 0;
  }

  /**
   * Gives up from now on when its time is over (a call that tries once has the time of its attempt), or when its signal
   * aborts.
   */
  mind(queue: WaiterQueue): void {
    if (this.#queue) return;
    this.#queue = queue;
    const { signal } = this.terms;
    if (!this.triesOnce) this.#timer = setTimeout(isOver, Math.ceil(this.remainingMs), queue, this);
    if (signal) this.#listenTo(signal, queue);
    if (signal?.aborted) queue.giveUp(this, signal.reason);
  }

  #listenTo(signal: AbortSignal, queue: WaiterQueue): void {
    this.#stopListening = onAbort(signal, () => queue.giveUp(this, signal.reason));
  }

  grant(lease: Lease): void {
    this.#settle();
    this.#resolve(this.callers.granted(this, lease));
  }

  refuse(reason: unknown): void {
    this.#settle();
    this.callers.refused(this, reason, () => this.#reject(reason));
  }

  #settle(): void {
    this.#isSettled = true;
    if (!this.#queue) return;
    clearTimeout(this.#timer);
    this.#stopListening?.();
  }
}
