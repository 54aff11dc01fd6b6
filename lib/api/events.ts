import { LockContendedError, LockUnavailableError, type LockLostReason, type NodeError } from './errors.js';
import type { LockHolder } from './holder.js';
import type { LockMode } from './lock.js';

/** How a lock is held, or was asked for: nothing is said of one that is exclusive. */
export interface HeldAs {
  /** `undefined`: exclusively. */
  mode?: Exclude<LockMode, 'exclusive'>;
  /** How many permits; `undefined` unless the mode is `permits`. */
  permits?: number;
}

interface OfLock extends HeldAs {
  key: string;
  /** The name under which locks are counted and measured: see the option `label`. */
  label: string;
  owner: string;
  /** `undefined` for locks without fencing tokens. */
  fencingToken?: number;
}

/**
 * How a call got its lock: it was `free`; the call `waited` until the holder, in any process, released it; or another call of
 * this process `passed` it on; or the call `adopted` it, from the process that had detached it.
 */
export type LockGrant = 'free' | 'waited' | 'passed' | 'adopted';

/** An event of `LockService.events$`. */
export type LockEvent =
  /** A lock was acquired after waiting for `waitedMs`. */
  | ({ type: 'acquired'; waitedMs: number; grant: LockGrant } & OfLock)
  /** A call gave up: others kept the lock. */
  | ({ type: 'contended'; key: string; label: string; waitedMs: number; holder?: LockHolder } & HeldAs)
  /** A call gave up: the store, or too many of its nodes, could not be reached or used. */
  | ({ type: 'unavailable'; key: string; label: string; waitedMs: number; causes: readonly NodeError[] } & HeldAs)
  /** The watchdog could not extend a lease; it tries again until the deadline. */
  | ({ type: 'extension-failed'; causes: readonly NodeError[] } & OfLock)
  /** A held lock was lost after `heldMs`; with the reason `overstayed`, others get it when its work has ended, or its lease. */
  | ({ type: 'lost'; reason: LockLostReason; heldMs: number } & OfLock)
  /** A lock was released after `heldMs`; or its work has ended, and `holdMs` keeps it until `keptUntil`. */
  | ({ type: 'released'; heldMs: number; keptUntil?: Date } & OfLock)
  /** A lock was detached after `heldMs`, for `ttlMs`. `digest` is that of its owner value from now on, as `inspect` shows it. */
  | ({ type: 'detached'; heldMs: number; ttlMs: number; digest: string } & OfLock)
  /** The application closes, and waits at most `timeoutMs` for this lock to be released. */
  | ({ type: 'closing'; timeoutMs: number } & OfLock)
  /** A release was not confirmed; it is repeated in the background. */
  | ({ type: 'release-failed'; causes: readonly NodeError[] } & OfLock)
  /**
   * Locks are used wrongly, or the store lacks a right, but they still work; reported once. `key` is the key of the call that
   * revealed it.
   */
  | { type: 'warning'; key: string; message: string };

/** The event of an acquire that failed; none when it was aborted, or called wrongly. @internal */
export function failureEvent(
  error: unknown,
  of: { readonly key: string; readonly label: string; readonly waitedMs: number } & HeldAs,
): Extract<LockEvent, { type: 'contended' | 'unavailable' }> | undefined {
  if (error instanceof LockContendedError) return { type: 'contended', ...of, holder: error.holder };
  return error instanceof LockUnavailableError ? { type: 'unavailable', ...of, causes: error.causes } : undefined;
}
