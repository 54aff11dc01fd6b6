import type { LockTelemetry } from './telemetry.js';

/** How a lock is kept; each can be set for the service and for a single call. */
export interface LeaseOptions {
  /**
   * How long the lease runs without being extended, in milliseconds, 20 to 86 400 000. It limits how long a lock stays behind
   * after a crash, not how long the work may take: the watchdog extends the lease after each third of this time.
   * @default 30000
   */
  ttlMs?: number;
  /**
   * How long to wait for a lock that another holder has, in milliseconds, 0 to 2 147 483 647. This is a real deadline, even if
   * the store does not answer. 0 tries exactly once, and ends within the time limit of one attempt.
   * @default 10000
   */
  waitMs?: number;
  /**
   * Extend the lease for as long as the work runs. If off, the lock is lost after `ttlMs`.
   * @default true
   */
  watchdog?: boolean;
  /**
   * Let a call that already holds the lock (by its async context) take it again, at no cost. If off, such a call fails at once
   * with `LockSelfDeadlockError`.
   * @default true
   */
  reentrant?: boolean;
  /**
   * What to do if the lock is taken inside a database transaction, whose commit comes after the release: `warn` in the log,
   * once for each method with `@Locked` and each first part of a key; `refuse` the call with `LockOptionsError`; or `allow` it.
   * Needs the module option `insideTransaction`.
   * @default 'warn'
   */
  onTransaction?: 'warn' | 'refuse' | 'allow';
}

/** The minimum and the maximum time for which a lock is kept. */
export interface HoldOptions {
  /**
   * Keep the lock for at least this long, however the work ends, in milliseconds, 0 to 86 400 000; on a Redlock at most the
   * `ttlMs` of the registration. The time starts when the call has its lock (with several keys, all of them). Neither a crash
   * nor closing the application shortens it. A lock that the call has not got yet, or gives back before it has all of them, is
   * not kept. `waitMs` and `signal` apply until the call has its lock, also while the store is asked to keep it.
   * @default 0: until the work has ended
   */
  holdMs?: number;
  /**
   * Let work hold the lock for this long at most, in milliseconds, 1 to 2 147 483 647, and at least `holdMs`: for work that may
   * hang. The time starts when the call has its lock (with several keys, all of them). When it is over, `lock.signal` aborts
   * with the reason `overstayed`, and the lease is not extended any more. Other calls get the lock when the work has ended, or
   * when the lease has, at most `ttlMs` later. The library cannot stop the work: let it listen to the signal. A nested call
   * may have a time of its own; whichever ends first ends the lock.
   * @default no limit
   */
  maxHoldMs?: number;
}

/**
 * The names of your policies, each with what it must have, for the compiler: any names, unless you declare yours.
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

/** The policies of a registration by name: exactly those that are declared, if any are. */
export type PoliciesByName = AreDeclared extends true
  ? { readonly [Name in keyof LockPolicies]: LockPolicy & LockPolicies[Name] }
  : Readonly<Record<string, LockPolicy>>;

/** Whether a call waits for its release. */
export interface ReleaseOptions {
  /**
   * `false`: the call returns when its work has ended and its release has been sent, without waiting for the answer. That saves a round
   * trip. A loss that only the release would find is an event then, and the call does not reject; a loss that was known before
   * still rejects. Other processes may see the lock for a moment longer. A release that is not confirmed is repeated in either case.
   * @default true
   */
  awaitRelease?: boolean;
}

/** Defaults with a name, for the calls that name it. */
export interface LockPolicy extends LeaseOptions, HoldOptions, ReleaseOptions {
  /** How many permits of the key there are, 1 to 1 000: for `@Limited` and calls for permits, which then need no `limit`. */
  limit?: number;
}

/** The policy of a call. */
export interface WithPolicy {
  /**
   * The name of a policy of the registration, whose options the call has. What the call says itself comes first, then its policy,
   * then the registration.
   * @default none
   */
  policy?: PolicyName;
}

/** The name under which a lock is counted and measured, and a note for people. */
export interface LabelOptions {
  /**
   * The label of the lock in events and in `stats()`: 1 to 100 characters. Use only a few different labels, so never put an id
   * into one.
   * @default for `@Locked`, the text of its key, such as `order:{0}`, or `Class.method` if there is none; for other calls the
   *   first part of the key, before its first colon, or `_key` for a key without a colon, since all of that may be data
   */
  label?: string;
  /**
   * What others see of this lock while it is held or waited for, for people: `editing the invoice`. `inspect`, `list`, the page, the command line and
   * the `LockContendedError` of a call that waits show it. 1 to 100 printable characters. It is no secret; it is part of no label,
   * metric or trace. A nested call has the note of the lock that it is under. Within a process a lock is passed on only among calls with the same note.
   * @default none
   */
  note?: string;
}

/** Whose key it is, where a registration has a `scope`. */
export interface ScopeOptions {
  /**
   * The scope of the key, instead of what the `scope` of the registration returns: `null` takes the key as it is, as for a lock that all
   * tenants share, or a key that `inspect` or `list` has shown.
   * @default what the `scope` of the registration returns
   */
  scope?: string | null;
}

/** What to do when the lock was lost while the work ran. */
export interface LossOptions {
  /**
   * `reject`: once the work has settled, the call rejects with `LockLostError`, which carries the outcome. `ignore`: the call
   * settles as the work did.
   * @default 'reject'
   */
  onLost?: 'reject' | 'ignore';
}

/** Settings of a lock service, for every kind of store. */
export interface LockServiceOptions extends LeaseOptions, LossOptions {
  /**
   * Safety margin in milliseconds: a lease counts as ended this much before the store may end it, in addition to the built-in
   * allowance for clock drift of 1 % + 2 ms. It must be less than nine tenths of the ttl.
   * @default 0
   */
  marginMs?: number;
  /**
   * Serve calls in the order in which they are made, over all processes, within 1 ms, the errors of the clocks of both processes
   * (half a round trip each, see docs/waiting.md), and the time until the first command of a process that begins to wait has
   * reached the store. A call can miss a turn, and keeps its place, if at the moment of a release the subscription of its process is
   * broken, its process has not run for 2 s, or the store's clock was set. All processes that share keys must agree. A store whose nodes
   * have no order of arrival in common (`redlock`) refuses it.
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
   * For how long after a grant a lock is passed on among the calls of one process that waited when the store granted it, in milliseconds,
   * 0 to 60 000; at most 100 times. Then other processes get their turn. More is faster; less shortens the wait of other processes. 0
   * asks the store each time. After work that takes longer than this, the lock is never passed on.
   * @default 100
   */
  cohortMs?: number;
  /**
   * Returns the scope of the running call, such as its tenant: `() => cls.get('tenant')`. Its keys then begin with it, as in `@acme/order:1`, so
   * that tenants never wait for each other. It runs in the async context of each call that names a key. `null` says that the call is of no
   * tenant, on purpose: its key stays as it is. `undefined` is refused with `LockKeyError`, since a tenant that was forgotten would share its
   * locks with others. Elections and `@LockedCron` are of the whole application: they have no scope.
   * @default keys have no scope
   */
  scope?: () => string | null | undefined;
  /**
   * Returns whether the running call is inside a database transaction, such as
   * `() => TransactionHost.getInstance().isTransactionActive()` of nestjs-cls. It runs in the async context of each call that
   * asks for a lock which it does not hold yet. If it throws, or returns anything but a boolean, this is logged once, and the
   * lock is acquired. `onTransaction` says what happens inside a transaction.
   * @default transactions are not detected
   */
  insideTransaction?: () => boolean;
  /**
   * What to do if calls take locks under other locks in different orders, so that two of them could wait for each other:
   * nothing; `warn` in the log, once for each pair of kinds of keys; or `throw` a `LockOptionsError` before the call asks for
   * the lock. A kind is the key without its ids. Up to 1 000 kinds are checked, in the orders that this process has seen.
   * @default 'off'
   */
  lockOrder?: 'off' | 'warn' | 'throw';
  /**
   * Options of calls under names, such as `{ slow: { ttlMs: 120_000, waitMs: 0 } }` for `@Locked('import', { policy: 'slow' })`: so their
   * values can come from the configuration. See `LockPolicies` for names that the compiler checks.
   * @default none
   */
  policies?: PoliciesByName;
  /**
   * Observes the calls of this service, such as `otelLocks()` of `nest-redis-lock/otel`: spans and metrics.
   * @default nothing is observed
   */
  telemetry?: LockTelemetry;
  /**
   * Start the application without waiting for the store. Until the store is there, each acquire fails with
   * `LockUnavailableError`.
   * @default false
   */
  lazyConnect?: boolean;
  /**
   * How long the start of the application waits for the store (as many nodes as it needs), in milliseconds, 10 to 600 000.
   * @default 5000
   */
  connectTimeoutMs?: number;
  /**
   * How long `app.close()` lets work that holds a lock continue, in milliseconds, 0 to 600 000, counted from when no more locks
   * are granted. Then `lock.signal` aborts (reason `shutdown`), and the locks are released. If an application has several
   * registrations, `app.close()` waits for all of them together, for the longest of their times.
   * @default 10000
   */
  shutdownTimeoutMs?: number;
}

/** Whether others may hold the lock at the same time. */
export interface ModeOptions {
  /**
   * `shared`: hold the lock together with all others that share it, as readers do; a call with `exclusive` waits until none of them holds it,
   * and none of them begins while such a call waits, except those who join the lease of their process within `cohortMs`. Without `fair`, a
   * reader that cannot join the lease of the reader before it may come in behind a writer that was called later. Needs a store with shared locks: one Redis, a Cluster, memory. Cannot be combined with
   * `holdMs`.
   * @default 'exclusive'
   */
  mode?: 'exclusive' | 'shared';
}

/** Options of `LockService.acquire` and `acquireAll`. */
export interface AcquireOptions extends LeaseOptions, HoldOptions, LabelOptions, ModeOptions, ScopeOptions, WithPolicy {
  /** Gives up waiting: the call rejects with `signal.reason`. It does not end a lock that is held. */
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

/** How many permits a call takes, and of how many. */
export interface PermitCount {
  /**
   * How many permits of the key there are, for all processes together, 1 to 1 000. Name the same number in all calls for one key: while
   * a call holds permits that named a smaller one, the smaller one counts for all, and a warning is logged once.
   */
  limit: number;
  /** How many permits the call takes, 1 to `limit`. @default 1 */
  permits?: number;
}

/** How many permits a call takes, where its policy has the limit. */
export interface PolicyPermitCount extends Partial<PermitCount> {
  /** The name of a policy of the registration that has a `limit`. */
  policy: PolicyName;
}

/** A limit, or a policy that has one. */
export type LimitOptions = PolicyPermitCount | (PermitCount & WithPolicy);

interface PermitCallOptions extends Omit<AcquireOptions, 'holdMs' | 'mode' | 'policy'> {
  /** Only for locks. */
  mode?: never;
  /** Only for locks: permits are not kept after the work. */
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
   * A pattern for the keys, 1 to 1 024 bytes: `*` stands for any text, every other character for itself.
   * @default '*'
   */
  match?: string;
  /**
   * How many locks are listed at most, 1 to 10 000. If there are more, it is undefined which of them are listed.
   * @default 500
   */
  limit?: number;
  /**
   * How long the search of the store may take, in milliseconds, 1 to 60 000. The locks that were found are then inspected,
   * which takes some more milliseconds.
   * @default 1000
   */
  budgetMs?: number;
}

/** Options of `LockService.withLock`. */
export interface WithLockOptions extends Omit<AcquireOptions, 'onLost' | 'awaitRelease'>, LossOptions, ReleaseOptions {}
