import type { Observable } from 'rxjs';
import type { LockLostReason } from './errors.js';

/** Options of an election. They must be the same wherever its key is used. */
export interface LeaderOptions {
  /**
   * Lease of the leader, in milliseconds, 20 to 86 400 000. After a leader crashes, nobody leads for this long. With a shorter
   * lease, a paused or disconnected leader steps down sooner, but also more often without need.
   * @default 15000
   */
  ttlMs?: number;
}

/** The reason why a leadership ended: the lock was lost, or the leader gave it up. */
export type LeadershipEnd =
  | LockLostReason
  /** `resign()` was called. */
  | 'resigned'
  /** A `@WhileLeader` method threw. */
  | 'failed'
  /** The application closes. */
  | 'closing';

/** One term of this process as the leader. `@WhileLeader` methods get it as their argument. */
export interface Leadership {
  /** The key of the election. */
  readonly key: string;
  /**
   * The fencing token of the leader's lock, larger in every later term, across all processes. Pass it to the resource, and let
   * the resource refuse a smaller term than the largest it has seen.
   */
  readonly term: number;
  /**
   * Aborts when the leadership ends: because the lock was lost (`LockLostError`), or because the leader resigned or the
   * application closes (`LockUnavailableError`). In the last two cases the lock is held until the work has ended. The
   * listeners run outside of the call that ended the leadership.
   */
  readonly signal: AbortSignal;
  /**
   * Whether the lock of this term is held now, computed on each read. It can still be held after `signal` has aborted.
   */
  readonly isHeld: boolean;

  /**
   * Throws unless the lock of this term is held now.
   * @throws LockLostError with the reason
   */
  assertHeld(): void;
}

/** The state of this process in an election. */
export type LeaderState =
  /** It is a candidate: another process leads, the store cannot be reached, or this process pauses after a failure. */
  | { readonly status: 'campaigning' }
  /** It leads. */
  | { readonly status: 'leading'; readonly leadership: Leadership }
  /** It no longer leads, but work of its last term still runs. */
  | { readonly status: 'ending'; readonly leadership: Leadership; readonly reason: LeadershipEnd }
  /** The application is closing or has closed: this process no longer takes part. The last state. */
  | { readonly status: 'closed' };

/** The part of this process in the election of one key: `LockService.leader(key)`. */
export interface Leader {
  /** The key of the election and of the leader's lock. */
  readonly key: string;
  /** Whether this process leads now, computed on each read: correct even right after the process was paused. */
  readonly isLeader: boolean;
  /** The fencing token of its leadership; `undefined` unless this process leads now. */
  readonly term: number | undefined;
  /**
   * Emits the current state, and each later one, once and in order. Completes when the application has closed. Observers run
   * outside of all calls.
   */
  readonly state$: Observable<LeaderState>;

  /**
   * Ends the leadership of this process, which then campaigns again, behind all processes that wait. Does nothing if
   * the process does not lead. Never throws.
   * @returns a promise that resolves when the work of the term has ended and the lock was released. Inside that work it resolves
   *   at once, since the work would otherwise wait for itself
   */
  resign(): Promise<void>;
}
