import type { LockTelemetry } from './telemetry.js';

/** Options of the lease and of waiting. Each can be set for the service and for a single call. */
export interface LeaseOptions {
  /**
   * Lease of the lock, in milliseconds, 20 to 86 400 000. It limits how long the lock outlives a crash, not how long the work may
   * take: the watchdog extends the lease after each third of this time.
   * @default 30000
   */
  ttlMs?: number;
  /**
   * Maximum time to wait for a lock that another call holds, in milliseconds, 0 to 2 147 483 647. It is a hard deadline, even if
   * the store does not answer. 0 tries exactly once, within the time limit of one attempt.
   * @default 10000
   */
  waitMs?: number;
  /**
   * Whether to extend the lease for as long as the work runs. Without the watchdog, the lock is lost after `ttlMs`.
   * @default true
   */
  watchdog?: boolean;
  /**
   * Whether a call that already holds the lock, by its async context, may take it again, at no cost. If not, such a call fails at
   * once with `LockSelfDeadlockError`.
   * @default true
   */
  reentrant?: boolean;
  /**
   * What to do if a call takes the lock inside a database transaction, which commits after the release. `warn` logs a warning,
   * once for each method with `@Locked` and each first part of a key. `refuse` rejects the call with `LockOptionsError`. `allow`
   * does nothing. Needs the module option `insideTransaction`.
   * @default 'warn'
   */
  onTransaction?: 'warn' | 'refuse' | 'allow';
}

/** The minimum and the maximum time for which a lock is held. */
export interface HoldOptions {
  /**
   * Minimum time to keep the lock, in milliseconds, 0 to 86 400 000, and on a Redlock at most the `ttlMs` of the registration.
   * ShedLock calls it `lockAtLeastFor`. The time starts when the call has its lock (of several keys: all locks). An error, a crash
   * and the close of the application do not shorten it. A call that fails before it has all its locks keeps none. `waitMs` and
   * `signal` still apply while the library asks the store to keep the lock.
   * @default 0: until the work has ended
   */
  holdMs?: number;
  /**
   * Maximum time to hold the lock, in milliseconds, 1 to 2 147 483 647, and at least `holdMs`: for work that may hang. ShedLock
   * calls it `lockAtMostFor`. The time starts when the call has its lock (of several keys: all locks). When it is over,
   * `lock.signal` aborts with the reason `overstayed`, and the watchdog stops. Other calls get the lock once the work ends or the
   * lease expires, at most `ttlMs` later. The library cannot stop the work: let the work listen to the signal. A nested call may
   * have its own limit; the first limit that is reached ends the lock.
   * @default no limit
   */
  maxHoldMs?: number;
}

/**
 * The names of your policies, and what each policy must contain, for the compiler. Until you declare some, any name is allowed.
 *
 * ```
 * declare module 'nest-redis-lock' {
 *   interface LockPolicies {
 *     slow: LockPolicy;
 *     partner: LockPolicy & { limit: number };
 *   }
 * }
 * ```
 */
export interface LockPolicies {}

type AreDeclared = [keyof LockPolicies] extends [never] ? false : true;

/** The name of a policy. Mapped, so that the compiler's errors list the names. */
export type PolicyName = AreDeclared extends true
  ? { [Name in keyof LockPolicies]: Name & string }[keyof LockPolicies]
  : string;

/** The policies of a registration by name: exactly the declared ones, if you declare any. */
export type PoliciesByName = AreDeclared extends true
  ? { readonly [Name in keyof LockPolicies]: LockPolicy & LockPolicies[Name] }
  : Readonly<Record<string, LockPolicy>>;

/** Options of the release. */
export interface ReleaseOptions {
  /**
   * Whether the call waits until the store confirms the release. `false` saves a round trip: the call returns once its work has
   * ended and its release was sent. Other processes may then see the lock for a moment longer. If only the release shows that the
   * lock was lost, the call does not reject, and the loss is just an event. An unconfirmed release is repeated in either case.
   * @default true
   */
  awaitRelease?: boolean;
}

/** Named options, for calls with this `policy`. */
export interface LockPolicy extends LeaseOptions, HoldOptions, ReleaseOptions {
  /** Number of permits of the key, 1 to 1 000: for `@Limited` and calls for permits, which then need no `limit`. */
  limit?: number;
}

/** The policy of a call. */
export interface WithPolicy {
  /**
   * The name of a policy of the registration. Options of the call override its policy, and the policy overrides the registration.
   * @default none
   */
  policy?: PolicyName;
}

/** The label of a lock in events and metrics, and a note for people. */
export interface LabelOptions {
  /**
   * The label of the lock in events and in `stats()`, 1 to 100 characters. Use few different labels: never put an id into one.
   * @default for `@Locked`, the text of its key, such as `order:{0}`, or `Class.method` if there is none; for other calls the
   *   first part of the key, before its first colon, or `_key` for a key without a colon, which may be an id as a whole
   */
  label?: string;
  /**
   * A note for people, 1 to 100 printable characters: `editing the invoice`. `inspect`, `list`, the page, the command line and the
   * `LockContendedError` of a waiting call show it while the call holds the lock or waits. It is not a secret, and appears in no
   * label, metric or trace. A nested call has the note of its outer lock. Within a process, a lock is passed on only among calls
   * with the same note.
   * @default none
   */
  note?: string;
}

/** The scope of a key, for a registration with a `scope`. */
export interface ScopeOptions {
  /**
   * The scope of the key, which overrides the `scope` of the registration. `null` leaves the key unchanged: for a lock that all
   * tenants share, or a key from `inspect` or `list`.
   * @default the result of the `scope` of the registration
   */
  scope?: string | null;
}

/** The reaction to a loss of the lock. */
export interface LossOptions {
  /**
   * What to do if the lock was lost while the work ran. `reject`: once the work has settled, the call rejects with
   * `LockLostError`, which carries the outcome. `ignore`: the call settles as the work did.
   * @default 'reject'
   */
  onLost?: 'reject' | 'ignore';
}

/** Settings of a lock service, for every kind of store. */
export interface LockServiceOptions extends LeaseOptions, LossOptions {
  /**
   * Safety margin, in milliseconds, less than nine tenths of the ttl. This process treats a lease as expired this long before the
   * store may end it. The built-in allowance for clock drift, 1 % + 2 ms, comes on top.
   * @default 0
   */
  marginMs?: number;
  /**
   * Whether calls of all processes get the lock in the order in which they were made. The order is exact to 1 ms, plus the clock
   * errors of both processes: half a round trip each, see docs/waiting.md. In addition, the first command of a waiting process must
   * have reached the store. A call can miss a turn, and keeps its place, if its process has lost its subscription or has not run for
   * 2 s, or if the store's clock was set. All processes that share keys must use the same value. A Redlock rejects it, since its nodes
   * have no common order.
   * @default false
   */
  fair?: boolean;
  /**
   * Maximum number of calls of one process that wait for one key, 1 to 1 000 000. The next call fails at once with
   * `LockContendedError`.
   * @default 10000
   */
  maxWaiters?: number;
  /**
   * How long after a grant the calls of one process may pass the lock on to each other, in milliseconds, 0 to 60 000; at most 100
   * times. Only calls that waited at the time of the grant get it. Then other processes get their turn. A longer time is faster; a
   * shorter one lets other processes wait less. With 0, each call asks the store. After work that takes longer than this, the lock is
   * never passed on.
   * @default 100
   */
  cohortMs?: number;
  /**
   * Returns the scope of the running call, such as its tenant: `() => cls.get('tenant')`. The keys of the call then begin with it,
   * as in `@acme/order:1`, so that tenants never wait for each other. The function runs in the async context of each call that
   * names a key. `null` means no tenant, on purpose: the key stays unchanged. `undefined` causes a `LockKeyError`, since a call
   * without its tenant would share locks with others. Elections and `@LockedCron` have no scope: they belong to the application.
   * @default keys have no scope
   */
  scope?: () => string | null | undefined;
  /**
   * Returns whether the running call is inside a database transaction, such as
   * `() => TransactionHost.getInstance().isTransactionActive()` of nestjs-cls. The function runs in the async context of each call
   * for a lock that the call does not hold yet. If it throws, or returns anything but a boolean, the library logs this once and
   * acquires the lock. `onTransaction` decides what happens inside a transaction.
   * @default transactions are not detected
   */
  insideTransaction?: () => boolean;
  /**
   * What to do if calls nest locks in different orders, so that two calls could wait for each other. `warn` logs a warning, once
   * for each pair of kinds of keys. `throw` throws a `LockOptionsError` before the call asks for the lock. A kind is the key without
   * its ids. The check covers up to 1 000 kinds, and the orders that this process has seen.
   * @default 'off'
   */
  lockOrder?: 'off' | 'warn' | 'throw';
  /**
   * Named options, such as `{ slow: { ttlMs: 120_000, waitMs: 0 } }` for `@Locked('import', { policy: 'slow' })`. So their values can
   * come from the configuration. `LockPolicies` lets the compiler check the names.
   * @default none
   */
  policies?: PoliciesByName;
  /**
   * An observer of the calls of this service, such as `otelLocks()` of `nest-redis-lock/otel` for spans and metrics.
   * @default nothing is observed
   */
  telemetry?: LockTelemetry;
  /**
   * Whether to start the application without waiting for the store. Until the store can be reached, each acquire fails with
   * `LockUnavailableError`.
   * @default false
   */
  lazyConnect?: boolean;
  /**
   * Maximum time that the start of the application waits for the store (of a Redlock: a majority), in milliseconds, 10 to 600 000.
   * @default 5000
   */
  connectTimeoutMs?: number;
  /**
   * Maximum time that `app.close()` waits for work that holds a lock, in milliseconds, 0 to 600 000. It begins when the service
   * stops granting locks. Then `lock.signal` aborts (reason `shutdown`), and the locks are released. With several registrations,
   * `app.close()` waits for all of them at once, up to the longest of their times.
   * @default 10000
   */
  shutdownTimeoutMs?: number;
}

/** The mode of a lock. */
export interface ModeOptions {
  /**
   * `shared` holds the lock together with all others that share it, as readers do. An `exclusive` call waits until nobody holds the
   * lock. While it waits, no reader gets the lock, except readers that join the lease of their process within `cohortMs`. Without
   * `fair`, a reader that cannot join such a lease may get its turn after a writer that was called later. Needs a store with shared
   * locks: one Redis, a Cluster, memory. Cannot be combined with `holdMs`.
   * @default 'exclusive'
   */
  mode?: 'exclusive' | 'shared';
}

/** Options of `LockService.acquire` and `acquireAll`. */
export interface AcquireOptions extends LeaseOptions, HoldOptions, LabelOptions, ModeOptions, ScopeOptions, WithPolicy {
  /** A signal that ends the wait: the call rejects with `signal.reason`. It does not end a lock that is held. */
  signal?: AbortSignal;
  /** Only for `withLock` and `@Locked`. With `acquire`, `lock.signal` reports a loss. */
  onLost?: never;
  /** Only for `withLock` and `@Locked`. With `acquire`, you decide whether to await `lock.release()`. */
  awaitRelease?: never;
}

/** Options of `LockService.tryAcquire` and `tryAcquireAll`. */
export interface TryAcquireOptions extends Omit<AcquireOptions, 'waitMs'> {
  /** It never waits. */
  waitMs?: never;
}

/** The number of permits that a call takes, and the limit of the key. */
export interface PermitCount {
  /**
   * Number of permits of the key, for all processes together, 1 to 1 000. Use the same limit in all calls for one key. Otherwise the
   * smallest limit of the current holders counts for all, and the library logs a warning once.
   */
  limit: number;
  /** Number of permits that the call takes, 1 to `limit`. @default 1 */
  permits?: number;
}

/** The number of permits that a call takes, with a policy that has the limit. */
export interface PolicyPermitCount extends Partial<PermitCount> {
  /** The name of a policy of the registration that has a `limit`. */
  policy: PolicyName;
}

/** A limit, or a policy with a limit. */
export type LimitOptions = PolicyPermitCount | (PermitCount & WithPolicy);

interface PermitCallOptions extends Omit<AcquireOptions, 'holdMs' | 'mode' | 'policy'> {
  /** Only for locks. */
  mode?: never;
  /** Only for locks. */
  holdMs?: never;
}

/** Options of `LockService.acquirePermits`. */
export type PermitOptions = PermitCallOptions & LimitOptions;

/** Options of `LockService.tryAcquirePermits`. */
export type TryPermitOptions = Omit<PermitCallOptions, 'waitMs'> & {
  /** It never waits. */
  waitMs?: never;
} & LimitOptions;

/** Options of `LockService.withPermits`. */
export type WithPermitsOptions = Omit<PermitCallOptions, 'onLost' | 'awaitRelease'> &
  LossOptions &
  ReleaseOptions &
  LimitOptions;

/** Options of `LockService.list`. */
export interface ListOptions {
  /**
   * A pattern for the keys, 1 to 1 024 bytes: `*` matches any text, every other character only itself.
   * @default '*'
   */
  match?: string;
  /**
   * Maximum number of locks in the list, 1 to 10 000. If there are more, the store decides which ones are listed.
   * @default 500
   */
  limit?: number;
  /**
   * Time limit of the search in the store, in milliseconds, 1 to 60 000. The library then inspects the locks that it found, which
   * takes a few more milliseconds.
   * @default 1000
   */
  budgetMs?: number;
}

/** Options of `LockService.withLock`. */
export interface WithLockOptions extends Omit<AcquireOptions, 'onLost' | 'awaitRelease'>, LossOptions, ReleaseOptions {}
