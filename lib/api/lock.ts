import type { LockHolder } from './holder.js';
import type { DetachOptions, LockParcel } from './parcel.js';

/** A lock that is, or was, held: what `acquire` returns and `withLock` passes to the work. */
export interface Lock extends AsyncDisposable {
  /** The key it was acquired with. */
  readonly key: string;
  /** Whether it is held alone, or shared with others. */
  readonly mode: 'exclusive' | 'shared';
  /** The value that identifies the holder in the store. Calls of one process share it if the lock is passed on between them. */
  readonly owner: string;
  /**
   * Larger than that of every earlier exclusive holder of this key; all who share a lock at a time have the same one. Pass it to the resource, and let the resource refuse a token smaller
   * than the largest it has seen. A safe integer; store it in a `bigint` column.
   */
  readonly fencingToken: number;
  /**
   * Aborts, with a `LockLostError` as its reason, the moment the lock is lost, or has been held for longer than `maxHoldMs`. A
   * release does not abort it. Its listeners run outside of the call that caused the loss: they hold none of its locks.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts, with a `LockUnavailableError` as its reason, when the application begins to close: work that has no end of its own
   * should end then. The lock is still held and extended, so that the work can end in order. Nested locks share this signal. It
   * does not abort once the lock was released or lost: read `closing` again then.
   */
  readonly closing: AbortSignal;
  /** Whether the lock is held now. Computed on each read, so it is correct even right after the process was paused. */
  readonly isHeld: boolean;
  /** Milliseconds until the deadline of the lease, or until `maxHoldMs` are over, if that is earlier; 0 if the lock is not held. */
  readonly remainingMs: number;

  /**
   * Throws unless the lock is held now.
   * @throws LockLostError with the reason
   */
  assertHeld(): void;

  /**
   * Extends the lease to `ttlMs` from now. Later extensions by the watchdog use the same ttl. It does not extend `maxHoldMs`.
   * Calls of this process may share the lease, nested ones or readers. It then lasts as long as the longest time that one of them asks for.
   * @param ttlMs milliseconds; default: the ttl of the lease
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not answer; the lock is then held until its current deadline
   */
  extend(ttlMs?: number): Promise<void>;

  /**
   * Releases the lock; further calls do nothing. Never throws: if the store cannot be reached, the release is repeated in the
   * background, and the lease ends by itself. A lock with `holdMs` is kept in the store until that time is over.
   * @returns `true` if the lock was removed (for a nested lock: if the outer one still holds it); `false` if it no longer
   *   belonged to this owner, or if that is unknown
   */
  release(): Promise<boolean>;

  /**
   * Hands the lock over to whoever gets the parcel: another process that adopts it, or a person or a workflow without a process.
   * Afterwards this handle holds nothing, as after a release; its `signal` does not abort. In the store the lock stands for
   * `ttlMs` under a new owner value, so that late commands of this process cannot change it.
   * @returns the parcel, plain JSON, and a secret
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not confirm it. If it may have happened, the lock is lost here, and is given back as soon
   *   as the store can be reached; at the latest it ends after `ttlMs`. Otherwise it is still held
   * @throws LockOptionsError for a lock that several calls of this process hold, one of several that were acquired at once, one with `holdMs`,
   *   one that `guard` was called for, or one on a Redlock
   */
  detach(options: DetachOptions): Promise<LockParcel>;

  /**
   * Shares an exclusive lock from now on: those who wait to share it get it, too, and nobody else comes in between. Afterwards this handle holds
   * nothing; its `signal` does not abort. `withLock` and `release` of this handle release the new one.
   * @returns a new handle, with the fencing token of all who share the lock now, which is larger than that of this one
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not confirm it. If it may have happened, the lock is lost here, and is given back as soon
   *   as the store can be reached. Otherwise it is still held exclusively
   * @throws LockOptionsError for a lock that is shared already, that several calls of this process hold, one of several that were acquired at
   *   once, one with `holdMs`, one that `guard` was called for, or where the store has no shared locks
   */
  downgrade(): Promise<Lock>;
}

/**
 * Permits of a key that are, or were, held: what `acquirePermits` returns and `withPermits` passes to the work. As others hold permits of
 * the key at the same time there is no fencing token: a resource could not tell by one who is late.
 */
export interface Permit extends Omit<Lock, 'fencingToken' | 'detach' | 'downgrade' | 'mode'> {
  /** How many of the permits of the key these are. */
  readonly permits: number;
}

/** Several locks that were acquired together, all or none: what `acquireAll` returns and `withLock([…])` passes to the work. */
export interface LockSet extends AsyncDisposable {
  /** The keys, each once, in the order in which they are acquired: sorted by code units. */
  readonly keys: readonly string[];
  /** The lock of one of the keys, with or without its scope, with its own fencing token. @throws LockOptionsError for a key that is not in the set */
  get(key: string): Lock;
  /**
   * Aborts, with a `LockLostError` as its reason, the moment the first of them is lost. The others are still held and extended.
   */
  readonly signal: AbortSignal;
  /** Aborts when the application begins to close, like `closing` of each of them. */
  readonly closing: AbortSignal;
  /** Whether all of them are held now. */
  readonly isHeld: boolean;
  /** Milliseconds until the earliest of their deadlines; 0 unless all are held. */
  readonly remainingMs: number;
  /** Throws unless all of them are held now. @throws LockLostError of the first that is not */
  assertHeld(): void;
  /**
   * Extends each of them, as `Lock.extend` does.
   * @throws the error of the first that could not be extended, after all were tried
   */
  extend(ttlMs?: number): Promise<void>;
  /** Releases each of them, even if others fail; further calls do nothing. @returns whether all were removed */
  release(): Promise<boolean>;
}

/** The locks of this process that have one label. */
export interface LockStats {
  label: string;
  /** How many are held: permits that one call has count as one lock, however many they are. */
  held: number;
  /** How many calls wait. */
  waiting: number;
}

/** How a lock is held: by one holder alone, by all who share it, or by holders of permits. */
export type LockMode = 'exclusive' | 'shared' | 'permits';

/** One of those who hold a lock, as `inspect` sees it. */
export interface HolderInfo {
  holder: LockHolder;
  /** Identifies this holding, as `LockInfo.digest` does. */
  digest: string;
  /** Since when it holds the lock, as `LockInfo.since`; `undefined` also for permits and shared locks in a store that does not keep it, as Redis. */
  since?: Date;
  /** Milliseconds until its lease ends, if it is not extended. */
  remainingMs: number;
  /** How many permits it has; `undefined` unless the mode is `permits`. */
  permits?: number;
  /**
   * How many calls of the holder's process wait behind its exclusive lock. Another process tells the store when it extends the lock, about each
   * third of the ttl. `undefined` if it has told nothing: no call waited, or the lock has not been extended yet, which the watchdog may not do. Also
   * `undefined` if the process is among `waitingProcesses`, where its `waiters` are all of its calls: so the sum of these numbers counts each
   * call once.
   */
  waiters?: number;
}

/** A process that waits for a lock. */
export interface WaitingProcess extends LockHolder {
  /**
   * How many of its calls wait, in whatever mode. It tells the store with its place, and again each second. `undefined` if its version of this
   * library does not tell.
   */
  waiters?: number;
}

/**
 * A held lock, as `inspect` sees it. An exclusive lock has one holder, which `holder`, `digest`, `since` and `remainingMs` describe. Where
 * several hold the lock they describe the first of `holders`.
 */
export interface LockInfo {
  /** The whole key, as locks and errors have it: `@acme/order:1` for the key `order:1` of the scope `acme`. */
  key: string;
  /** The scope of its key: see `scope` of the module. `undefined`: it has none. */
  scope?: string;
  mode: LockMode;
  /** All who hold it now, in the order in which they came. */
  holders: HolderInfo[];
  /** Of the mode `permits`: how many all holders together have, and the smallest limit that one of them named. */
  permits?: { held: number; limit: number };
  /** Its holder; `holder.detached` if the lock is detached. */
  holder: LockHolder;
  /**
   * Identifies this holding of the lock, for `forceRelease(key, { owner })`. It is a digest, which does not reveal the owner
   * value.
   */
  digest: string;
  /**
   * When it was acquired, by the clock of this process; `undefined` if another program wrote the key, or if the clock of the
   * server was set back since.
   */
  since?: Date;
  /** Milliseconds until the lease of its holder ends, if it is not extended. */
  remainingMs: number;
  /** When it is free again, by the clock of this process, if the work under it has ended and it is kept for its `holdMs`. */
  keptUntil?: Date;
  /**
   * The fencing token of its holder; all who share a lock have the same. While a lock is passed on within a process, it is the last of the
   * tokens reserved for these passes. `undefined` for permits, if another program wrote the key, or if the nodes of a Redlock do not agree. On a Redlock whose
   * nodes first voted for different tokens it is larger than that of the holder: compare tokens at the resource, not with this
   * one.
   */
  fencingToken?: number;
  /**
   * How many calls of this process wait for it. `waitingProcesses` has the calls of other processes, except for those behind an exclusive
   * lock of their own process, which `holders` has.
   */
  waiters: number;
  /**
   * The processes that wait for it, including this one, in the order of their first places among the first 100 in the queue of
   * the store. `owner` identifies such a place. A process that has ended is left out after about three seconds, once another
   * process has shown that it waits, or after ten seconds, when the queue ends. For locks in memory it is this one or none;
   * `undefined` where nobody knows, as in MySQL and MariaDB, which have no queue.
   */
  waitingProcesses?: WaitingProcess[];
}

/** The answer of `LockService.list()`. */
export interface LockList {
  /** The locks that are held or kept, sorted by the code units of their keys. */
  locks: LockInfo[];
  /**
   * Whether these are all locks: the whole store was searched, there are no more than `limit`, and on a Redlock no other lock
   * can have a majority with the nodes that do not answer.
   */
  complete: boolean;
  /**
   * How many keys the search looked at, including those of other programs: on Redis in thousands, rounded up for each server.
   */
  scanned: number;
}
