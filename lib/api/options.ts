import type { RedisSource } from '../stores/redis/client/source.js';

export type { RedisSource };

/** How a lock is kept; each can be set for the module and for a single call. */
export interface LeaseOptions {
  /**
   * How long the lease runs without being extended, in milliseconds, 20 to 86 400 000. It bounds how long a lock
   * stays behind after a crash, not how long the work may take: the watchdog extends it every third of this time.
   * @default 30000
   */
  ttlMs?: number;
  /**
   * How long to wait for a lock that somebody else holds, in milliseconds, 0 to 2 147 483 647. A real deadline, also
   * when Redis does not answer. 0 tries exactly once.
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

/** How many replicas must have a lock before it counts as held, and for how long they are waited for. */
export interface ReplicaOptions {
  /** 1 to 100; Redis itself is not counted. */
  count: number;
  /** In milliseconds, 1 to 60 000, and at most a third of `ttlMs`. A call that comes while others wait may take twice as long. */
  timeoutMs: number;
}

/** What is done when the lock was lost while the work ran. */
export interface LossOptions {
  /**
   * `reject`: when the work has settled, the call rejects with `LockLostError`, which carries the outcome.
   * `ignore`: the call settles as the work did.
   * @default 'reject'
   */
  onLost?: 'reject' | 'ignore';
}

/** Settings of one registration of the module. */
export interface RedisLockSettings extends LeaseOptions, LossOptions {
  /**
   * First part of every key in Redis: `<keyPrefix>:{<key>}`. Not empty, no braces.
   * @default 'lock'
   */
  keyPrefix?: string;
  /**
   * How long one command may take before its node counts as unavailable, in milliseconds, 10 to 60 000.
   * @default 1000; for each node of a Redlock 5 % of the ttl, at least 50 and at most 200
   */
  commandTimeoutMs?: number;
  /**
   * Safety margin in milliseconds: a lease counts as ended this much before Redis may end it, beyond the built-in
   * allowance for clock drift of 1 % + 2 ms. Less than the ttl leaves.
   * @default 0
   */
  guardMs?: number;
  /**
   * Wait until so many replicas have a lock, and each extension of it, with the command WAIT on a connection of its own. If
   * they do not in time, the lock is given back, and the call fails with `LockUnavailableError`. It survives the failover
   * to a replica that had it; which replica is promoted is not up to this library. Only with `redis`.
   * @default not waited for
   */
  waitForReplicas?: ReplicaOptions;
  /**
   * Serve calls strictly in the order in which they reached Redis, over all processes: nobody who comes later is served
   * first, no lock is passed on within a process. It costs about three Redis commands for each acquisition. All processes
   * that share keys must agree. Not with `redlock`.
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
   * How many times in a row a lock is passed on among the calls of one process that waited when Redis granted it, before
   * other processes have their turn, 0 to 1 000. More is faster, less lets others wait for shorter. 0 asks Redis each time.
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
   * Only with `redlock`: a node that was started, or lost its data, votes again when the longest ttl in use has passed since,
   * so that all locks that it may have forgotten have ended. Where it writes to disk before it answers (`appendfsync always`)
   * a start is no reason to wait. Off, two calls can hold one lock after a node came back empty: only fencing tokens help then.
   * @default true
   */
  restartGuard?: boolean;
  /**
   * Says whether the running call is inside a database transaction, such as
   * `() => TransactionHost.getInstance().isTransactionActive()` of nestjs-cls. It is asked in the async context of each call
   * that asks for a lock, except one that the call holds already. If it throws, or returns something else, that is logged
   * once, and the lock is taken. What follows says `onTransaction`.
   * @default not asked
   */
  insideTransaction?: () => boolean;
  /**
   * Start the application without waiting for Redis: until it is back each acquire fails with `LockUnavailableError`.
   * @default false
   */
  lazyConnect?: boolean;
  /**
   * How long the start of the application waits for Redis (a majority of the nodes), in milliseconds, 10 to 600 000.
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

/** Exactly one of `redis`, `redlock` and `memory`, and the settings. */
export type RedisLockModuleOptions = RedisLockSettings &
  (
    | {
        /** Locks in the memory of this process: for unit tests and first steps. They exclude nobody else. */
        memory: true;
        redis?: never;
        redlock?: never;
      }
    | {
        /** At least 3 independent masters, an odd number: a lock is held when a majority granted it. */
        redlock: RedisSource[];
        redis?: never;
        memory?: never;
      }
    | {
        /** One Redis server, one Sentinel-managed master, or one Cluster. */
        redis: RedisSource;
        redlock?: never;
        memory?: never;
      }
  );

/** For `forRootAsync({ useClass | useExisting })`. */
export interface RedisLockOptionsFactory {
  createRedisLockOptions(): RedisLockModuleOptions | Promise<RedisLockModuleOptions>;
}

/** Options of `LockService.acquire`. */
export interface AcquireOptions extends LeaseOptions {
  /** Gives up waiting: the call rejects with `signal.reason`. It does not end a lock that is held. */
  signal?: AbortSignal;
  /** Of `withLock` and `@Locked` only: here `lock.signal` tells of a loss. */
  onLost?: never;
}

/** Options of `LockService.tryAcquire`. */
export interface TryAcquireOptions extends Omit<AcquireOptions, 'waitMs'> {
  /** It never waits. */
  waitMs?: never;
}

/** Options of `LockService.withLock`. */
export interface WithLockOptions extends Omit<AcquireOptions, 'onLost'>, LossOptions {}
