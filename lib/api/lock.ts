import type { LockHolder } from './holder.js';

/** A lock that is, or was, held: what `acquire` returns and `withLock` passes to the work. */
export interface Lock extends AsyncDisposable {
  /** The key it was acquired with. */
  readonly key: string;
  /** The value that marks the holder in the store; shared by calls of one process that the lock is passed on between. */
  readonly owner: string;
  /**
   * Greater than that of every earlier holder of this key: give it to the resource and let the resource refuse
   * a smaller one than it has seen. A safe integer; keep it in a `bigint` column.
   */
  readonly fencingToken: number;
  /** Aborted, with a `LockLostError` as its reason, the moment the lock is lost. Not aborted by a release. */
  readonly signal: AbortSignal;
  /**
   * Aborted, with a `LockUnavailableError` as its reason, when the application begins to close: work that has no end of its
   * own should end then. The lock is still held and extended, so that it can be ended in order. Nested locks share it. A lock
   * that is released or lost is not notified: ask it for `closing` again.
   */
  readonly closing: AbortSignal;
  /** Whether the lock is held now: computed when asked, so also right after the process was paused. */
  readonly isHeld: boolean;
  /** Milliseconds until the deadline of the lease, 0 when it is not held. */
  readonly remainingMs: number;

  /**
   * Throws unless the lock is held now.
   * @throws LockLostError with the reason
   */
  assertHeld(): void;

  /**
   * Extends the lease to `ttlMs` from now, and the watchdog keeps to that ttl from then on.
   * @param ttlMs milliseconds; default: the ttl of the lease
   * @throws LockLostError when the lock is not held any more
   * @throws LockUnavailableError when the store did not answer; the lock is then held until its present deadline
   */
  extend(ttlMs?: number): Promise<void>;

  /**
   * Releases the lock; further calls do nothing. Never throws: when the store cannot be asked, the release is repeated in the
   * background, and the lease ends by itself. A lock with `holdMs` is kept in the store until then.
   * @returns `true` when the lock was removed (of a nested lock: when it is still held by the outer one); `false` when it
   *   was not this owner's any more, or that is unknown
   */
  release(): Promise<boolean>;
}

/** Several locks that were acquired all or none: what `acquireAll` returns, and `withLock([…])` passes to the work. */
export interface LockSet extends AsyncDisposable {
  /** Their keys, each once, in the order in which they are acquired: that of their code units. */
  readonly keys: readonly string[];
  /**
   * The lock of one of the keys, with a fencing token of its own.
   * @throws LockOptionsError for a key that is not of the set
   */
  get(key: string): Lock;
  /** Aborted, with a `LockLostError` as its reason, the moment the first of them is lost. The others are held and extended on. */
  readonly signal: AbortSignal;
  /** Aborted when the application begins to close, as `closing` of each of them. */
  readonly closing: AbortSignal;
  /** Whether all of them are held now. */
  readonly isHeld: boolean;
  /** Milliseconds until the first deadline of them, 0 unless all are held. */
  readonly remainingMs: number;
  /** Throws unless all of them are held now. @throws LockLostError of the first that is not */
  assertHeld(): void;
  /**
   * Extends each of them, as `Lock.extend` does.
   * @throws the error of the first that could not be extended, when all were tried
   */
  extend(ttlMs?: number): Promise<void>;
  /** Releases each of them, whatever becomes of the others; further calls do nothing. @returns whether all were removed */
  release(): Promise<boolean>;
}

/** The locks of this process that have one label. */
export interface LockStats {
  label: string;
  /** How many are held. */
  held: number;
  /** How many calls wait. */
  waiting: number;
}

/** A held lock, as `inspect` sees it. */
export interface LockInfo {
  key: string;
  /** Its holder. */
  holder: LockHolder;
  /**
   * Names this holding of the lock, for `forceRelease(key, { owner })`: a digest of the owner value, which does not show it.
   */
  digest: string;
  /**
   * When it was acquired, by the clock of this process; `undefined` when another program wrote the key, or the clock of the
   * server was set back since.
   */
  since?: Date;
  /** Milliseconds until its lease ends unless it is extended. */
  remainingMs: number;
  /** When it is free again, by the clock of this process, if the work under it has ended and it is kept for its `holdMs`. */
  keptUntil?: Date;
  /**
   * The fencing token of its holder; while a lock is passed on within a process, the last of those that are reserved for
   * that. `undefined` when another program wrote the key, or the nodes of a Redlock do not agree. On a Redlock it is larger than
   * that of the holder where its nodes first voted for different tokens: compare tokens at the resource, not with this one.
   */
  fencingToken?: number;
  /** How many calls of this process wait for it. */
  waiters: number;
  /**
   * The processes that wait for it, this one too, in the order of their first places among the first 100 in the queue of the
   * store. `owner` names such a place. A process that has ended is left out once another has shown that it waits, after some
   * three seconds, or when the queue ends after ten. Empty for locks in memory, where no other process can wait.
   */
  waitingProcesses: LockHolder[];
}

/** The answer of `LockService.list()`. */
export interface LockList {
  /** The locks that are held, or kept, by their keys in the order of their code units. */
  locks: LockInfo[];
  /**
   * Whether these are all of them: the store was searched to its end, there are no more than `limit`, and on a Redlock no other
   * lock may have a majority with the nodes that do not answer.
   */
  complete: boolean;
  /** How many keys the search has looked at, of all programs that use the store: in thousands on Redis, rounded up for each server. */
  scanned: number;
}
