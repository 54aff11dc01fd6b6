import type { LockTelemetry } from './telemetry.js';

/** How a lock is kept; each can be set for the service and for a single call. */
export interface LeaseOptions {
  /**
   * How long the lease runs without being extended, in milliseconds, 20 to 86 400 000. It bounds how long a lock
   * stays behind after a crash, not how long the work may take: the watchdog extends it every third of this time.
   * @default 30000
   */
  ttlMs?: number;
  /**
   * How long to wait for a lock that another holder has, in milliseconds, 0 to 2 147 483 647. A real deadline, also
   * when the store does not answer. 0 tries exactly once.
   * @default 10000
   */
  waitMs?: number;
  /**
   * Extend the lease for as long as the work runs. When off, the lock is lost after `ttlMs`.
   * @default true
   */
  watchdog?: boolean;
  /**
   * Let a call that already holds the lock (by its async context) take it again, at no cost. When off, such a call
   * fails at once with `LockSelfDeadlockError`.
   * @default true
   */
  reentrant?: boolean;
  /**
   * What to do when the lock is taken inside a database transaction, whose commit comes after the release: `warn` in the log,
   * once for each method with `@Locked` and each first part of a key; `refuse` the call with `LockOptionsError`; or `allow` it.
   * Needs the module option `insideTransaction`.
   * @default 'warn'
   */
  onTransaction?: 'warn' | 'refuse' | 'allow';
}

/** For how long a lock is kept at least. */
export interface HoldOptions {
  /**
   * Keep the lock for at least this long, however the work ends, in milliseconds, 0 to 86 400 000; on a Redlock at most the
   * `ttlMs` of the registration. It counts from when the call has its lock, of several keys all of them: a crash does not shorten
   * it, nor does closing the application. What is still waited for, or given back before the call has it, is not kept.
   * @default 0: until the work has ended
   */
  holdMs?: number;
}

/** What a lock is for, where locks are counted and measured. */
export interface LabelOptions {
  /**
   * The label of the lock in events and in `stats()`: 1 to 100 characters, one of few, so never an id.
   * @default the text of the key of `@Locked`, such as `order:{0}`, or `Class.method` where there is none; of other calls the
   * first part of the key, up to a colon
   */
  label?: string;
}

/** What to do when the lock was lost while the work ran. */
export interface LossOptions {
  /**
   * `reject`: when the work has settled, the call rejects with `LockLostError`, which carries the outcome.
   * `ignore`: the call settles as the work did.
   * @default 'reject'
   */
  onLost?: 'reject' | 'ignore';
}

/** Settings of a lock service, whatever keeps its locks. */
export interface LockServiceOptions extends LeaseOptions, LossOptions {
  /**
   * Safety margin in milliseconds: a lease counts as ended this much before the store may end it, beyond the built-in
   * allowance for clock drift of 1 % + 2 ms. Less than the ttl leaves.
   * @default 0
   */
  marginMs?: number;
  /**
   * Serve calls strictly in the order in which they reached the store, over all processes: no later call is served first, and
   * no lock is passed on within a process. It costs about three requests to the store for each acquisition. All processes that
   * share keys must agree. A store whose nodes have no order of arrival in common (`redlock`) refuses it.
   * @default false
   */
  fair?: boolean;
  /**
   * How many calls of one process may wait for one key, 1 to 1 000 000: the next one is refused at once with
   * `LockContendedError`.
   * @default 10000
   */
  maxWaiters?: number;
  /**
   * How many times in a row a lock is passed on among the calls of one process that waited when the store granted it, before
   * other processes have their turn, 0 to 1 000. More is faster, less lets others wait for shorter. 0 asks the store each time.
   * @default 100
   */
  cohortPasses?: number;
  /**
   * For how long after a grant a lock is passed on within the process, in milliseconds, 0 to 60 000: then other processes
   * have their turn. Work that takes longer than this is never followed by a pass.
   * @default 100
   */
  cohortMs?: number;
  /**
   * Says whether the running call is inside a database transaction, such as
   * `() => TransactionHost.getInstance().isTransactionActive()` of nestjs-cls. It is asked in the async context of each call
   * that asks for a lock, except one that the call holds already. If it throws, or returns something else, that is logged
   * once, and the lock is acquired. `onTransaction` says what happens inside a transaction.
   * @default not asked
   */
  insideTransaction?: () => boolean;
  /**
   * What to do when calls take locks under other locks in different orders, so that two of them could wait for each other:
   * nothing; `warn` in the log, once for each pair of kinds of keys; or `throw` `LockOptionsError` before the lock is asked for.
   * A kind is the key without its ids. Up to 1 000 kinds are checked, in the orders that this process has seen.
   * @default 'off'
   */
  lockOrder?: 'off' | 'warn' | 'throw';
  /**
   * Observes the calls of this service, such as `otelLocks()` of `nest-redis-lock/otel`: spans and metrics.
   * @default nothing is observed
   */
  telemetry?: LockTelemetry;
  /**
   * Start the application without waiting for the store: until it is there each acquire fails with `LockUnavailableError`.
   * @default false
   */
  lazyConnect?: boolean;
  /**
   * How long the start of the application waits for the store (as many nodes as it needs), in milliseconds, 10 to 600 000.
   * @default 5000
   */
  connectTimeoutMs?: number;
  /**
   * How long `app.close()` lets work that holds a lock run on, in milliseconds, 0 to 600 000, from the moment on that it gives
   * out no more locks. Then `lock.signal` aborts (reason `shutdown`), and the locks are released. Several registrations of one
   * application are waited for together, for the longest of their times.
   * @default 10000
   */
  shutdownTimeoutMs?: number;
}

/** Options of `LockService.acquire` and `acquireAll`. */
export interface AcquireOptions extends LeaseOptions, HoldOptions, LabelOptions {
  /** Gives up waiting: the call rejects with `signal.reason`. It does not end a lock that is held. */
  signal?: AbortSignal;
  /** Only for `withLock` and `@Locked`: here `lock.signal` reports a loss. */
  onLost?: never;
}

/** Options of `LockService.tryAcquire` and `tryAcquireAll`. */
export interface TryAcquireOptions extends Omit<AcquireOptions, 'waitMs'> {
  /** It never waits. */
  waitMs?: never;
}

/** Options of `LockService.list`. */
export interface ListOptions {
  /**
   * The keys of the locks, 1 to 1 024 bytes: `*` stands for any text, every other character for itself.
   * @default '*'
   */
  match?: string;
  /**
   * How many locks are listed at most, 1 to 10 000: which of them, if there are more, is not defined.
   * @default 500
   */
  limit?: number;
  /**
   * For how long the store is searched, in milliseconds, 1 to 60 000. What was found is then inspected, which takes some
   * milliseconds more.
   * @default 1000
   */
  budgetMs?: number;
}

/** Options of `LockService.withLock`. */
export interface WithLockOptions extends Omit<AcquireOptions, 'onLost'>, LossOptions {}
