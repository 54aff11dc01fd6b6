import type { LockHolder } from './holder.js';
import type { DetachOptions, LockParcel } from './parcel.js';

/** A lock that is, or was, held: what `acquire` returns and `withLock` passes to the work. */
export interface Lock extends AsyncDisposable {
  /** The key of the lock. */
  readonly key: string;
  /** Whether the lock is held alone or shared with others. */
  readonly mode: 'exclusive' | 'shared';
  /** The value that identifies the holder in the store. Calls of one process share it if the lock is passed on between them. */
  readonly owner: string;
  /**
   * The fencing token: larger than the token of every earlier exclusive holder of this key. All who share a lock at a time have
   * the same one. Pass it to the resource, and let the resource refuse a smaller token than the largest it has seen. A safe
   * integer; store it in a `bigint` column.
   */
  readonly fencingToken: number;
  /**
   * Aborts, with a `LockLostError` as its reason, as soon as the lock is lost or has been held for longer than `maxHoldMs`. A
   * release does not abort it. Its listeners run outside of the call that caused the loss: they hold none of its locks.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts, with a `LockUnavailableError` as its reason, when the application begins to close: work without an end of its own
   * should stop then. The lock is still held and extended, so that the work can finish. Nested locks share this signal. After a
   * release or a loss it no longer aborts: read `closing` again then.
   */
  readonly closing: AbortSignal;
  /** Whether the lock is held now, computed on each read: correct even right after the process was paused. */
  readonly isHeld: boolean;
  /** Milliseconds until the lease expires or `maxHoldMs` is reached, whichever comes first; 0 if the lock is not held. */
  readonly remainingMs: number;

  /**
   * Throws unless the lock is held now.
   * @throws LockLostError with the reason
   */
  assertHeld(): void;

  /**
   * Extends the lease to `ttlMs` from now. Later extensions by the watchdog use the same ttl. It does not extend `maxHoldMs`.
   * If several calls of this process share the lease (nested calls, or readers), the longest requested ttl counts.
   * @param ttlMs milliseconds; default: the ttl of the lease
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not answer; the lock is then held until its current deadline
   */
  extend(ttlMs?: number): Promise<void>;

  /**
   * Releases the lock; further calls do nothing. Never throws: if the store cannot be reached, the library repeats the release in
   * the background, and the lease expires in any case. A lock with `holdMs` stays in the store until that time is over.
   * @returns `true` if the lock was removed (for a nested lock: if the outer one still holds it); `false` if it no longer
   *   belonged to this owner, or if the result is unknown
   */
  release(): Promise<boolean>;

  /**
   * Turns the lock into a parcel, a detached lock that can be passed as JSON. Another process can adopt it, or a person or a workflow
   * without a process can hold it. This handle then holds nothing, as after a release; its `signal` does not abort. The lock remains
   * valid for `ttlMs` under a new owner value, so that late commands of this process cannot change it.
   * @returns the parcel, which is a secret
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not confirm it. If the lock may have been detached, it is lost here. The library then
   *   releases it as soon as the store can be reached; it expires after `ttlMs` at the latest. Otherwise the lock is still held
   * @throws LockOptionsError for a lock that several calls of this process hold, a lock of a set, a lock with `holdMs`, a lock that
   *   `guard` was called for, or a lock on a Redlock
   */
  detach(options: DetachOptions): Promise<LockParcel>;

  /**
   * Turns an exclusive lock into a shared one. Calls that wait for a shared lock get it too, and no other call gets the lock in
   * between. This handle then holds nothing; its `signal` does not abort. `withLock` and `release` of this handle release the new one.
   * @returns a new handle with a larger fencing token, which all current holders of the shared lock have
   * @throws LockLostError if the lock is no longer held
   * @throws LockUnavailableError if the store did not confirm it. If the lock may have been downgraded, it is lost here, and the
   *   library releases it as soon as the store can be reached. Otherwise it is still held exclusively
   * @throws LockOptionsError for a shared lock, a lock that several calls of this process hold, a lock of a set, a lock with
   *   `holdMs`, a lock that `guard` was called for, or a store without shared locks
   */
  downgrade(): Promise<Lock>;
}

/**
 * Permits of a key that are, or were, held: what `acquirePermits` returns and `withPermits` passes to the work. Permits have no
 * fencing token: several callers hold them at the same time, so a token could not identify a late writer.
 */
export interface Permit extends Omit<Lock, 'fencingToken' | 'detach' | 'downgrade' | 'mode'> {
  /** The number of permits that the call holds. */
  readonly permits: number;
}

/** Several locks that were acquired together, all or none: what `acquireAll` returns and `withLock([…])` passes to the work. */
export interface LockSet extends AsyncDisposable {
  /** The keys, each once, in the order in which they are acquired: sorted by code units. */
  readonly keys: readonly string[];
  /**
   * Returns the lock of one key, which has its own fencing token.
   * @param key with or without its scope
   * @throws LockOptionsError for a key that is not in the set
   */
  get(key: string): Lock;
  /**
   * Aborts, with a `LockLostError` as its reason, as soon as one of the locks is lost. The others are still held and extended.
   */
  readonly signal: AbortSignal;
  /** Aborts when the application begins to close, like `closing` of each lock. */
  readonly closing: AbortSignal;
  /** Whether all locks are held now. */
  readonly isHeld: boolean;
  /** Milliseconds until the first of the leases expires; 0 unless all locks are held. */
  readonly remainingMs: number;
  /** Throws unless all locks are held now. @throws LockLostError of the first lost lock */
  assertHeld(): void;
  /**
   * Extends all locks, as `Lock.extend` does.
   * @throws the first error, after all were tried
   */
  extend(ttlMs?: number): Promise<void>;
  /** Releases all locks, even if some releases fail; further calls do nothing. @returns whether all were removed */
  release(): Promise<boolean>;
}

/** The locks of this process that have one label. */
export interface LockStats {
  label: string;
  /** The number of locks held. Everything that one call holds counts as one lock, however many permits it has. */
  held: number;
  /** The number of calls that wait. */
  waiting: number;
}

/** How a lock is held: by one holder, by all who share it, or by holders of permits. */
export type LockMode = 'exclusive' | 'shared' | 'permits';

/** One holder of a lock, as `inspect` shows it. */
export interface HolderInfo {
  holder: LockHolder;
  /** A digest that identifies this holding, like `LockInfo.digest`. */
  digest: string;
  /**
   * The time when it acquired the lock, like `LockInfo.since`. Also `undefined` for permits and shared locks in a store that does not
   * store it, such as Redis.
   */
  since?: Date;
  /** Milliseconds until its lease expires unless it is extended. */
  remainingMs: number;
  /** The number of its permits; `undefined` unless the mode is `permits`. */
  permits?: number;
  /**
   * The number of calls that wait behind the exclusive lock in the holder's process. Another process reports it when it extends the
   * lock, after about each third of the ttl. `undefined` without a report: no call waited, or the lock was not extended yet. Also
   * `undefined` if the process is among `waitingProcesses`, whose `waiters` count all of its calls: so no call counts twice.
   */
  waiters?: number;
}

/** A process that waits for a lock. */
export interface WaitingProcess extends LockHolder {
  /**
   * The number of its calls that wait, in any mode. The process reports it when it joins the queue, and then every second.
   * `undefined` if its version of this library does not report it.
   */
  waiters?: number;
}

/**
 * A held lock, as `inspect` shows it. `holder`, `digest`, `since` and `remainingMs` describe the only holder of an exclusive lock,
 * or the first of several `holders`.
 */
export interface LockInfo {
  /** The whole key, as in locks and errors: `@acme/order:1` for the key `order:1` of the scope `acme`. */
  key: string;
  /** The scope of the key, see `scope` of the module; `undefined` if it has none. */
  scope?: string;
  mode: LockMode;
  /** All current holders, in the order of their arrival. */
  holders: HolderInfo[];
  /** In the mode `permits`: the number of permits held, and the smallest limit that any holder uses. */
  permits?: { held: number; limit: number };
  /** The holder; `holder.detached` is set if the lock is detached. */
  holder: LockHolder;
  /**
   * A digest that identifies this holding of the lock, for `forceRelease(key, { owner })`. It does not reveal the owner value.
   */
  digest: string;
  /**
   * The time when it was acquired, by the clock of this process; `undefined` if another program wrote the key, or if the clock of
   * the server has been set back since.
   */
  since?: Date;
  /** Milliseconds until the lease of its holder expires unless it is extended. */
  remainingMs: number;
  /** The time when it becomes free, by the clock of this process. Set if the work has ended and `holdMs` keeps the lock. */
  keptUntil?: Date;
  /**
   * The fencing token of its holder; all who share a lock have the same one. While a lock is passed on within a process, this is
   * the last token reserved for these passes. `undefined` for permits, if another program wrote the key, or if the nodes of a
   * Redlock disagree. On a Redlock it can be larger than the holder's token, if the nodes first voted for different tokens. So compare
   * tokens at the resource, not with this one.
   */
  fencingToken?: number;
  /**
   * The number of calls of this process that wait for the lock. Calls of other processes are in `waitingProcesses`; calls behind an
   * exclusive lock of their own process are in `holders`.
   */
  waiters: number;
  /**
   * The processes that wait for it, including this one, in the order of their first places among the first 100 places in the
   * store's queue. `owner` identifies such a place. A process that has ended disappears after about three seconds if another one
   * waits, and otherwise after ten seconds, when the queue expires. For locks in memory it is this process or none. `undefined`
   * in a store without a queue, such as MySQL and MariaDB.
   */
  waitingProcesses?: WaitingProcess[];
}

/** The answer of `LockService.list()`. */
export interface LockList {
  /** The locks that are held or kept, sorted by the code units of their keys. */
  locks: LockInfo[];
  /**
   * Whether these are all locks: the whole store was searched, there are at most `limit` locks, and the silent nodes of a Redlock
   * could not give another lock a majority.
   */
  complete: boolean;
  /**
   * The number of keys that the search has read, including keys of other programs: on Redis in thousands, rounded up for each server.
   */
  scanned: number;
}
