import type { Observable } from 'rxjs';
import type { LockLostReason } from './errors.js';

/** Options of an election: the same for all that ask for it by its key. */
export interface LeaderOptions {
  /**
   * How long the lease of the leader runs without being extended, in milliseconds, 20 to 86 400 000: for so long there is no
   * leader after one has crashed. Shorter lets a paused or disconnected leader step down sooner, and more often for nothing.
   * @default 15000
   */
  ttlMs?: number;
}

/** Why a leadership ended: the lock was lost, or the leader gave it back. */
export type LeadershipEnd =
  | LockLostReason
  /** `resign()` was called. */
  | 'resigned'
  /** Work of a `@WhileLeader` method threw. */
  | 'failed'
  /** The application closes. */
  | 'closing';

/** One term of this process as the leader: what a `@WhileLeader` method gets. */
export interface Leadership {
  /** The key of the election. */
  readonly key: string;
  /**
   * The fencing token of the leader's lock: greater in every later term, in all processes. Give it to the resource and let the
   * resource refuse a smaller one than it has seen.
   */
  readonly term: number;
  /**
   * Aborted when the leadership ends: the lock was lost (`LockLostError`), or the leader resigned or the application closes
   * (`LockUnavailableError`). In the last two cases the lock is held until the work has ended.
   */
  readonly signal: AbortSignal;
  /** Whether the lock of this term is held now: computed when asked, also after `signal` was aborted to end the work in order. */
  readonly isHeld: boolean;

  /**
   * Throws unless the lock of this term is held now.
   * @throws LockLostError with the reason
   */
  assertHeld(): void;
}

/** The state of this process in an election. */
export type LeaderState =
  /** It wants to be elected: another process leads, or the store cannot be asked, or it pauses after a failure. */
  | { readonly status: 'campaigning' }
  /** It leads. */
  | { readonly status: 'leading'; readonly leadership: Leadership }
  /** It does not lead any more; work of its last term still runs. */
  | { readonly status: 'ending'; readonly leadership: Leadership; readonly reason: LeadershipEnd }
  /** The application has closed, or closes: it takes part no more. The last state. */
  | { readonly status: 'closed' };

/** The part of this process in the election of one key: `LockService.leader(key)`. */
export interface Leader {
  /** The key of the election, which is that of the leader's lock. */
  readonly key: string;
  /** Whether this process leads now: computed when asked, so also right after the process was paused. */
  readonly isLeader: boolean;
  /** The fencing token of its leadership; undefined unless this process leads now. */
  readonly term: number | undefined;
  /** The last state, and each one after it, once and in order. Completes when the application has closed. */
  readonly state$: Observable<LeaderState>;

  /**
   * Ends the leadership of this process, which then campaigns again, behind all processes that wait. Does nothing unless it
   * leads. Never throws.
   * @returns settles when the work of the term has ended and the lock was released; at once within that work, which would
   *   otherwise wait for itself
   */
  resign(): Promise<void>;
}
