import { LockContendedError, LockUnavailableError, type LockLostReason, type NodeError } from './errors.js';
import type { LockHolder } from './holder.js';
import type { LockMode } from './lock.js';

/** How a lock is held or was requested. Both fields are undefined for an exclusive lock. */
export interface HeldAs {
  /** The mode; `undefined` for an exclusive lock. */
  mode?: Exclude<LockMode, 'exclusive'>;
  /** The number of permits; `undefined` unless the mode is `permits`. */
  permits?: number;
}

interface LockIdentity extends HeldAs {
  key: string;
  /** The name under which locks are counted and measured: see the option `label`. */
  label: string;
  owner: string;
  /** The fencing token; `undefined` if the lock has none. */
  fencingToken?: number;
}

/**
 * How a call got its lock. `free`: nobody held it. `waited`: a holder in any process released it. `passed`: another call of this
 * process passed it on. `adopted`: the call adopted a detached lock.
 */
export type LockGrant = 'free' | 'waited' | 'passed' | 'adopted';

/** An event of `LockService.events$`. */
export type LockEvent =
  /** A lock was acquired after waiting for `waitedMs`. */
  | ({ type: 'acquired'; waitedMs: number; grant: LockGrant } & LockIdentity)
  /** A call gave up: others kept the lock. */
  | ({ type: 'contended'; key: string; label: string; waitedMs: number; holder?: LockHolder } & HeldAs)
  /** A call gave up: the store, or too many of its nodes, could not be reached or used. */
  | ({ type: 'unavailable'; key: string; label: string; waitedMs: number; causes: readonly NodeError[] } & HeldAs)
  /** The watchdog could not extend a lease; it tries again until the deadline. */
  | ({ type: 'extension-failed'; causes: readonly NodeError[] } & LockIdentity)
  /** A held lock was lost after `heldMs`. With the reason `overstayed`, others get it once the work ends or the lease expires. */
  | ({ type: 'lost'; reason: LockLostReason; heldMs: number } & LockIdentity)
  /** A lock was released after `heldMs`; or its work has ended, and `holdMs` keeps it until `keptUntil`. */
  | ({ type: 'released'; heldMs: number; keptUntil?: Date } & LockIdentity)
  /** A lock was detached after `heldMs`, for `ttlMs`. `digest` is the digest of its new owner value, as `inspect` shows it. */
  | ({ type: 'detached'; heldMs: number; ttlMs: number; digest: string } & LockIdentity)
  /** The application is closing, and waits at most `timeoutMs` for the release of this lock. */
  | ({ type: 'closing'; timeoutMs: number } & LockIdentity)
  /** A release was not confirmed; the library repeats it in the background. */
  | ({ type: 'release-failed'; causes: readonly NodeError[] } & LockIdentity)
  /**
   * Locks are used wrongly, or the store lacks a right, but they still work; reported once. `key` is the key of the call that
   * revealed it.
   */
  | { type: 'warning'; key: string; message: string };

/** Returns the event of a failed acquire; none if it was aborted or called wrongly. @internal */
export function failureEvent(
  error: unknown,
  of: { readonly key: string; readonly label: string; readonly waitedMs: number } & HeldAs,
): Extract<LockEvent, { type: 'contended' | 'unavailable' }> | undefined {
  if (error instanceof LockContendedError) return { type: 'contended', ...of, holder: error.holder };
  return error instanceof LockUnavailableError ? { type: 'unavailable', ...of, causes: error.causes } : undefined;
}
