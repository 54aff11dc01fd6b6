import type { Grant } from '../backend/lock-backend.js';
import { LockLostError, LockUnavailableError, type LockLostReason, type LockOutcome } from '../../api/errors.js';
import type { Linked, LinkedList } from '../time/linked-list.js';
import { validityMs } from '../time/validity.js';

/** `unknown`: its time is over, unless it was extended and that is not read yet. */
export type LeaseState = 'held' | 'unknown' | 'lost' | 'released';

/**
 * One lock that this process was granted, until it is released or lost. Whether it is held is computed when asked:
 * after a pause of the process, user code runs before any timer does.
 */
export class Lease implements Linked<Lease> {
  /** How many handles share it; the last one to be released releases it. */
  handles = 1;
  list?: LinkedList<Lease>;
  next?: Lease;
  previous?: Lease;
  /** When the watchdog looks at it next, by the clock. */
  dueAt = 0;
  /** An extension is under way; one at a time. */
  isExtending = false;
  /** It was granted for this short time, in milliseconds, and not extended yet. */
  provisionalTtlMs?: number;
  /** It was to have another ttl, and nobody knows which one it has in Redis. */
  isUnsettled = false;
  /** What the last extension failed with, if the lease could not be extended since. */
  fault?: Error;
  #deadline: number;
  /** If the extension that is under way was granted. */
  #deadlineIfExtended = 0;
  #state: LeaseState = 'held';
  #lost?: LockLostError;
  #abort?: AbortController;
  #closing?: AbortController;
  #whenAnswered?: (() => void)[];

  constructor(
    readonly grant: Grant,
    /** One of those of the grant, if that has any. */
    readonly fencingToken: number | undefined,
    /** What it is extended by, in milliseconds. */
    public ttlMs: number,
    /** Whether the watchdog extends it. */
    readonly kept: boolean,
    /** When the command that won or last extended it was sent. */
    public sentAt: number,
    private readonly guardMs: number,
    private readonly now: () => number,
    /** Called once when the lease is lost, or found to be by whoever asks. */
    private readonly expire: (lease: Lease) => void,
  ) {
    this.#deadline = sentAt + validityMs(ttlMs, guardMs);
  }

  get key(): string {
    return this.grant.key;
  }

  get deadline(): number {
    return this.#deadline;
  }

  /** `held` only if it may be relied on right now. */
  get state(): LeaseState {
    if (this.#state !== 'held' || this.now() < this.#deadline) return this.#state;
    // A process that was busy, or paused, from its first moment on has not read anything since.
    if (this.provisionalTtlMs !== undefined && this.isExtending && this.now() < this.#deadlineIfExtended)
      return 'unknown';
    this.expire(this);
    return this.#state;
  }

  /** Whether it did not end, as far as is known. */
  get isAlive(): boolean {
    const { state } = this;
    return state === 'held' || state === 'unknown';
  }

  get remainingMs(): number {
    return this.state === 'held' ? Math.max(0, this.#deadline - this.now()) : 0;
  }

  /** Whether the lock was lost: while it was held, or as the release found. */
  get isLost(): boolean {
    return this.state === 'lost' || this.#lost !== undefined;
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController(); // made when asked for: most locks are never asked
      if (this.state === 'lost') this.#abort.abort(this.#lost);
    }
    return this.#abort.signal;
  }

  /** Aborts when its work is asked to end, since the application closes. */
  get closing(): AbortSignal {
    return (this.#closing ??= new AbortController()).signal; // one for each lease: listeners are collected with it
  }

  /** The application closes: its work should end. */
  askToEnd(): void {
    this.#closing ??= new AbortController();
    this.#closing.abort(
      new LockUnavailableError(`The application is closing: work under lock "${this.key}" should end.`, this.key),
    );
  }

  /** Before an extension by another ttl is sent: should its answer be lost, the shorter of both leases is what counts. */
  extending(sentAt: number, ttlMs: number): void {
    if (ttlMs !== this.ttlMs) this.isUnsettled = true;
    this.ttlMs = ttlMs;
    this.#deadlineIfExtended = sentAt + validityMs(ttlMs, this.guardMs);
    this.#deadline = Math.min(this.#deadline, this.#deadlineIfExtended);
  }

  /** Waits for the answer to the extension that is under way. */
  answered(): Promise<void> {
    return new Promise((resolve) => (this.#whenAnswered ??= []).push(resolve));
  }

  /** The extension that was under way is answered. */
  endExtending(): void {
    const waiting = this.#whenAnswered;
    this.isExtending = false;
    this.#whenAnswered = undefined;
    waiting?.forEach((resolve) => resolve());
  }

  extended(sentAt: number): void {
    this.sentAt = sentAt;
    this.fault = undefined;
    this.isUnsettled = false;
    this.provisionalTtlMs = undefined;
    this.#deadline = sentAt + validityMs(this.ttlMs, this.guardMs);
  }

  /** @returns false when it was not held any more */
  release(): boolean {
    if (this.#state !== 'held') return false;
    this.#state = 'released';
    return true;
  }

  /** @returns false when it was not held any more */
  lose(reason: LockLostReason): boolean {
    if (this.#state !== 'held') return false;
    this.#state = 'lost';
    this.#lost = new LockLostError(this.key, reason, undefined, this.fault);
    this.#abort?.abort(this.#lost);
    return true;
  }

  /** The release found that the key was not this owner's any more. */
  foundGone(): void {
    this.#lost = new LockLostError(this.key, 'expired');
  }

  /** The error of a lease that is not held. */
  lostError(outcome?: LockOutcome): LockLostError {
    // A nested call under the same lock has said already that it was lost: what counts is how its work ended.
    const reason: unknown = outcome?.status === 'rejected' ? outcome.reason : undefined;
    const inner = reason instanceof LockLostError && reason.key === this.key ? reason.outcome : undefined;
    const why = this.#lost?.reason ?? (this.#state === 'held' ? 'unavailable' : 'released');
    return new LockLostError(this.key, why, inner ?? outcome, this.fault);
  }
}
