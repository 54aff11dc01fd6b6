import { LockContendedError, LockUnavailableError, type LockLostReason, type NodeError } from './errors.js';
import type { LockHolder } from './holder.js';

interface OfLock {
  key: string;
  owner: string;
  /** Undefined where what is held has none. */
  fencingToken?: number;
}

/** What `LockService.events$` reports. */
export type LockEvent =
  /** A lock was acquired after waiting for `waitedMs`. */
  | ({ type: 'acquired'; waitedMs: number } & OfLock)
  /** A call gave up: another holder kept the lock. */
  | { type: 'contended'; key: string; waitedMs: number; holder?: LockHolder }
  /** A call gave up: the store, or too many of its nodes, could not be asked. */
  | { type: 'unavailable'; key: string; causes: readonly NodeError[] }
  /** The watchdog could not extend a lease; it tries again until the deadline. */
  | ({ type: 'extension-failed'; causes: readonly NodeError[] } & OfLock)
  /** A held lock was lost. */
  | ({ type: 'lost'; reason: LockLostReason } & OfLock)
  /** A lock was given back. */
  | ({ type: 'released' } & OfLock)
  /** The application closes and waits for this lock to be given back, for `timeoutMs` at most. */
  | ({ type: 'closing'; timeoutMs: number } & OfLock)
  /** A release was not confirmed; it is repeated in the background. */
  | ({ type: 'release-failed'; causes: readonly NodeError[] } & OfLock)
  /** Something is wrong with how locks are used, and they work all the same; said once. `key` is that of the call that showed it. */
  | { type: 'warning'; key: string; message: string };

/** What an acquire that failed is told as; nothing when it was aborted, or asked for wrongly. @internal */
export function failureEvent(key: string, error: unknown): LockEvent | undefined {
  if (error instanceof LockContendedError) {
    return { type: 'contended', key, waitedMs: error.waitedMs, holder: error.holder };
  }
  return error instanceof LockUnavailableError ? { type: 'unavailable', key, causes: error.causes } : undefined;
}
