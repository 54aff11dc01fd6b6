import type { Observable } from 'rxjs';
import type { LockBackend } from '../backend/lock-backend.js';
import { checkKey, checkKeys } from '../keys/key.js';
import type { LockDiagnosis, LockPing, NodeReport } from '../../api/diagnosis.js';
import { LockContendedError, LockOptionsError, LockSelfDeadlockError, type LockOutcome } from '../../api/errors.js';
import { failureEvent, type LockEvent } from '../../api/events.js';
import type { Leader, LeaderOptions, Leadership } from '../../api/leader.js';
import type { Lease } from '../lease/lease.js';
import type { Keeping } from '../lease/leases.js';
import { LockHandle } from '../lease/lock-handle.js';
import { LockSetHandle } from '../lease/lock-set-handle.js';
import type { Lock, LockInfo, LockList, LockSet, LockStats } from '../../api/lock.js';
import type {
  AcquireOptions,
  ListOptions,
  LossOptions,
  TryAcquireOptions,
  WithLockOptions,
} from '../../api/options.js';
import type { AcquireTrace, HoldTrace } from '../../api/telemetry.js';
import { checkHold, checkShortest, resolveRequest, type CallKind, type LockRequest } from '../options/call-options.js';
import { resolveLeaderOptions } from '../options/leader-options.js';
import type { ResolvedServiceOptions } from '../options/service-options.js';
import { acquireAll } from './acquire-all.js';
import { Election } from './election.js';
import { loopTurn, outsideOfCalls } from '../time/event-loop.js';
import { inTime } from '../time/time-limit.js';
import { LockContext } from './lock-context.js';
import { LockAdmin } from './lock-admin.js';
import { LockOrder, type LockedMethod } from './lock-order.js';
import { LockEngine, type EngineParts } from '../engine/lock-engine.js';
import { unfit } from '../options/checks.js';
import { PublishedEvents, Telemetry } from '../telemetry/telemetry.js';
import { unlessAborted } from '../waiting/abort-listener.js';
import { closed, notKept } from '../waiting/refusals.js';
import { timeOf, type WaitRequest } from '../waiting/waiter.js';
import type { Closable, Shutdown } from './shutdown.js';
import { TransactionCheck } from './transaction-check.js';

/** No caller hears of a loss: the signal of the leadership says it, and its state. */
const WITHOUT_CALLER: LossOptions = { onLost: 'ignore' };

/** The work of a call under its lock. */
export type Work<T> = (lock: Lock) => T | PromiseLike<T>;

/** The work of a call under its locks. */
export type WorkOfSet<T> = (locks: LockSet) => T | PromiseLike<T>;

/** The request of one of the locks of a call. */
type WaitingRequest = LockRequest & Pick<WaitRequest, 'since' | 'isProbe'>;

/** What a call acquires. */
type Held = LockHandle | LockSetHandle;

/** The request of a call that holds these leases meanwhile: its refusal names them. */
function underLocks<Request extends object>(request: Request, held: readonly Lease[] | undefined) {
  return held ? { ...request, holding: held.map(({ key }) => key) } : request;
}

/** The parts of a lock service. */
export interface LockServiceParts {
  backend: LockBackend;
  options: ResolvedServiceOptions;
  /** Name of the registration. */
  registration: string;
  /** The clock that the backend reads `sentAt` from, too, in milliseconds. */
  now: () => number;
  /** The beginning of its owner values. */
  processName: string;
  /** The shutdown of the application, which closes all its lock services at once. */
  shutdown: Shutdown;
  /** The longest `holdMs` that the store can keep. @default any */
  longestHoldMs?: number;
  /** The shortest `ttlMs` that the store can extend in time. @default any */
  shortestTtlMs?: number;
  /** Makes its engine. @default a `LockEngine` */
  engineOf?: (parts: EngineParts) => LockEngine;
}

/** Acquires, extends and releases locks. Inject it: `RedisLockModule` provides one for each registration. */
export class LockService {
  /** Name of the registration it belongs to. */
  readonly registration: string;
  /**
   * Events of the locks of this service; completes when the application has closed. Observers run outside of the call that caused
   * an event: they hold none of its locks.
   */
  readonly events$: Observable<LockEvent>;
  /** The same, but whoever subscribes here is not told of grants, releases and contention for its own sake. @internal */
  readonly troubles$: Observable<LockEvent>;

  readonly #options: ResolvedServiceOptions;
  /** The same options, for calls that do not wait. */
  readonly #onlyOnce: ResolvedServiceOptions;
  readonly #backend: LockBackend;
  readonly #now: () => number;
  readonly #engine: LockEngine;
  readonly #admin: LockAdmin;
  readonly #held = new LockContext();
  readonly #elections = new Map<string, Election>();
  readonly #events: PublishedEvents;
  readonly #telemetry: Telemetry;
  readonly #transactions?: TransactionCheck;
  readonly #order?: LockOrder;
  readonly #shutdown: Shutdown;
  readonly #longestHoldMs: number;
  readonly #shortestTtlMs: number;
  readonly #closable: Closable;
  #closing?: Promise<void>;

  private constructor({
    backend,
    options,
    registration,
    now,
    processName,
    shutdown,
    longestHoldMs = Infinity,
    shortestTtlMs = 0,
    engineOf = (parts) => new LockEngine(parts),
  }: LockServiceParts) {
    this.registration = registration;
    this.#events = new PublishedEvents(registration);
    this.events$ = this.#events.asObservable();
    this.troubles$ = this.#events.troubles.asObservable();
    this.#options = options;
    this.#onlyOnce = { ...options, waitMs: 0 };
    this.#backend = backend;
    this.#now = now;
    const { insideTransaction, lockOrder, telemetry } = options;
    const warn = (key: string, message: string) => this.#events.next({ type: 'warning', key, message });
    if (insideTransaction) this.#transactions = new TransactionCheck(insideTransaction, warn);
    if (lockOrder !== 'off') this.#order = new LockOrder(lockOrder === 'warn' ? warn : undefined);
    this.#engine = engineOf({ backend, now, limits: { ...options, shortestTtlMs }, processName, events: this.#events });
    this.#shutdown = shutdown;
    this.#admin = new LockAdmin(registration, backend, this.#engine, shutdown);
    this.#longestHoldMs = longestHoldMs;
    this.#shortestTtlMs = shortestTtlMs;
    this.#closable = {
      timeoutMs: options.shutdownTimeoutMs,
      held: this.#held,
      engine: this.#engine,
      elections: this.#elections,
    };
    this.#telemetry = new Telemetry(warn, (observe) => LockContext.beside(observe));
    if (telemetry) {
      this.#telemetry.open(telemetry, this, this.events$);
      this.#engine.leases.onExtension = (...extension) => this.#telemetry.extended(...extension);
    }
    shutdown.join(this.#closable);
  }

  /** @internal A lock module makes it. */
  static of(parts: LockServiceParts): LockService {
    return new LockService(parts);
  }

  /**
   * Acquires a lock, waiting for up to `waitMs` milliseconds while another holder has it. Release it in a `finally`, or with
   * `await using`; `withLock` does that by itself.
   * @throws LockContendedError if another holder kept it for the whole `waitMs`
   * @throws LockUnavailableError if the store could not be reached, at the latest after the time limit of one attempt
   * @throws LockSelfDeadlockError if this call already holds it, with `reentrant: false`
   * @throws LockKeyError, LockOptionsError, or the reason of `signal`
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lock> {
    return this.#acquire(key, options, 'acquire');
  }

  /**
   * Acquires a lock if it is free; tries exactly once. @returns null if another holder has it @throws like `acquire`, except
   * that contention is not an error
   */
  async tryAcquire(key: string, options?: TryAcquireOptions): Promise<Lock | null> {
    try {
      return await this.#acquire(key, options, 'tryAcquire');
    } catch (error) {
      if (error instanceof LockContendedError) return null;
      throw error;
    }
  }

  /**
   * Acquires the locks of all keys, 1 to 100, or none: in one round trip if they are free. Otherwise it holds those before the
   * first one that is taken, and waits for that one, for up to `waitMs` milliseconds in all. All calls use the same order of
   * keys, so no two of them wait for each other; work under one lock that acquires more locks still can.
   * @throws like `acquire`; the `key` of the error is that of the lock that was refused
   */
  acquireAll(keys: readonly string[], options?: AcquireOptions): Promise<LockSet> {
    return this.#acquireAll(keys, options, 'acquire');
  }

  /**
   * Acquires the locks of all keys if all are free; tries exactly once. @returns null if another holder has one of them @throws
   * like `acquireAll`, except that contention is not an error
   */
  async tryAcquireAll(keys: readonly string[], options?: TryAcquireOptions): Promise<LockSet | null> {
    try {
      return await this.#acquireAll(keys, options, 'tryAcquire');
    } catch (error) {
      if (error instanceof LockContendedError) return null;
      throw error;
    }
  }

  /**
   * Runs the work under a lock, which is acquired before, extended while the work runs, and released afterwards, whatever the
   * outcome. With a list of keys, runs it under all of their locks: see `acquireAll`.
   * @returns the result of the work
   * @throws like `acquire`; the error of the work; LockLostError if the lock was lost while the work ran (see `onLost`)
   */
  withLock<T>(keys: readonly string[], work: WorkOfSet<T>): Promise<T>;
  withLock<T>(keys: readonly string[], options: WithLockOptions, work: WorkOfSet<T>): Promise<T>;
  // Last, since some compilers show the error of the last one only.
  withLock<T>(key: string, work: Work<T>): Promise<T>;
  withLock<T>(key: string, options: WithLockOptions, work: Work<T>): Promise<T>;
  // Not an async function, nor is any promise awaited twice, here and below: each hop costs as much as the rest of the call.
  withLock<T>(
    key: string | readonly string[],
    ...rest: [(held: never) => T | PromiseLike<T>] | [WithLockOptions, (held: never) => T | PromiseLike<T>]
  ): Promise<T> {
    const [options, work] = rest.length === 1 ? [undefined, rest[0]] : rest;
    if (typeof work !== 'function') {
      return this.#engine.refuse(
        new LockOptionsError(
          `withLock(key, options, work) needs a function as its last argument: got ${work === null ? 'null' : typeof work}.`,
        ),
      );
    }
    return this.#run(this.#acquireOneOrAll(key, options), options, work as (held: Held) => T | PromiseLike<T>);
  }

  /**
   * Like `withLock`, for callers that tell a refusal from an error of the work.
   * @param onRefused called with the reason of a refusal; its result or error is the outcome
   * @param method the method that is locked, for messages
   * @internal
   */
  async withLockOr<T>(
    key: string | readonly string[],
    options: WithLockOptions | undefined,
    work: () => T | PromiseLike<T>,
    onRefused: (error: unknown) => T | PromiseLike<T>,
    method?: LockedMethod,
  ): Promise<T> {
    let held: Held;
    try {
      held = await this.#acquireOneOrAll(key, options, method);
    } catch (error) {
      return onRefused(error);
    }
    if (method && this.#order) for (const lease of leasesOf(held)) this.#order.note(lease, method);
    return this.#run(held, options, work);
  }

  /**
   * The lock that this call runs under, by its async context: the innermost one, or the one of the key. @throws
   * LockOptionsError if this call runs under no such lock, or without a key, if it runs under several that were acquired at
   * once
   */
  current(key?: string): Lock {
    return this.#held.current(key);
  }

  /**
   * Takes part in the election of a key, from this call until the application closes. Of all processes that take part, one
   * leads at a time. There is one election for each registration and key, however often you call this.
   *
   * The leader holds the lock of the key: `acquire` and similar calls wait for it, and fail in the process that leads. @throws
   * LockKeyError, or LockOptionsError, also if the election was begun with other options
   */
  leader(key: string, options: LeaderOptions = {}): Leader {
    return this.#electionOf(key, options);
  }

  /**
   * Calls the work in each term of this process, under a handle of its own on the leader's lock. If it throws, the process
   * resigns, and campaigns again after a pause.
   * @internal
   */
  whileLeader(key: string, options: LeaderOptions, work: (term: Leadership) => PromiseLike<unknown>): void {
    const underLock = (term: Leadership, lock: LockHandle) => this.#run(lock, WITHOUT_CALLER, () => work(term));
    const election = this.#electionOf(key, options);
    outsideOfCalls(() => election.whileLeader(underLock));
  }

  /**
   * Runs the work if this process leads, under a handle of its own on the leader's lock.
   * @returns undefined when it does not lead
   * @throws LockLostError when the lock was lost meanwhile
   * @internal
   */
  async ifLeader<T>(key: string, options: LeaderOptions, work: Work<T>): Promise<T | undefined> {
    let running: Promise<T> | undefined;
    try {
      running = this.#electionOf(key, options).run((lock) => this.#run(lock, undefined, work));
    } catch (error) {
      return this.#engine.refuse(error);
    }
    if (!running) await loopTurn(); // a loop of calls that are skipped would stop the event loop
    return running;
  }

  /**
   * How many locks of each label this process holds, and how many of its calls wait. Counted on each call. For gauges and
   * monitoring.
   */
  stats(): LockStats[] {
    return this.#engine.stats();
  }

  /** The labels of the locks that this process holds, or waits for, by key. @internal */
  labels(): Map<string, string> {
    return this.#engine.labels();
  }

  /**
   * The holder of a lock, since when and for how long it is held, and which processes wait for it. @returns null if it is free
   * @throws LockUnavailableError
   */
  inspect(key: string): Promise<LockInfo | null> {
    return this.#admin.inspect(key);
  }

  /** Whether the lock has a holder. @throws LockUnavailableError */
  async isLocked(key: string): Promise<boolean> {
    return (await this.#admin.inspect(key)) !== null;
  }

  /**
   * The locks of all processes with the same `keyPrefix` that are held or kept now. For operators: this searches the store key
   * by key, including keys of other programs (docs/operations.md has the costs). A lock that is held during the whole search is
   * found; one that is acquired or released during the search may be missing.
   * @throws LockUnavailableError if the store could not be searched, or its user lacks the right to that: the list is never
   *   partial for such a reason
   * @throws LockOptionsError
   */
  list(options: ListOptions = {}): Promise<LockList> {
    return this.#admin.list(options);
  }

  /**
   * Takes a lock away from its holder. A holder in this process notices at once. A holder in another process notices at its
   * next extension at the latest, or at once if that process waits, or has waited, for any lock. The lock is lost with the
   * reason `forced`, or with what the extension finds: `expired` or `stolen`. For operators who know that the holder is gone.
   * @param options.owner the `digest` that `inspect` returned: takes the lock only from this holder, not from a later one
   * @returns whether the lock had a holder; with `owner`, whether it had that one
   * @throws LockUnavailableError; the release may then still happen
   * @throws LockOptionsError if `owner` is not a digest, such as the owner value of a `LockHolder`
   */
  forceRelease(key: string, options: { owner?: string } = {}): Promise<boolean> {
    return this.#admin.forceRelease(key, options);
  }

  /**
   * Checks each server: whether it is reachable and configured safely, and which rights are missing. For a health page; the
   * application does the same when it starts. Takes a second at most, and never rejects.
   * @typeParam Node the backend's report on a server: `NodeDiagnosis` for Redis
   */
  diagnose<Node extends NodeReport = NodeReport>(): Promise<LockDiagnosis<Node>> {
    return this.#admin.diagnose() as Promise<LockDiagnosis<Node>>;
  }

  /**
   * Whether locks can be taken now. Asks each server once, on the connection that locks use, and opens no new one. Good for
   * readiness checks, since it costs one command for each server; `diagnose` says more. Takes `commandTimeoutMs` at most, and
   * never rejects.
   */
  ping(): Promise<LockPing> {
    return this.#admin.ping();
  }

  /**
   * Whether locks are available again: acquires one beside that of the key, on the same server, as a server that answers may
   * still refuse writes. Never rejects; false when the application closes.
   * @internal
   */
  async isAvailable(key: string): Promise<boolean> {
    return this.#shutdown.closing.phase === 'open' && this.#engine.isAvailable(key);
  }

  /** Called first when the application closes: asks work under a lock to end, and rejects waiting calls. @internal */
  onModuleDestroy(): void {
    this.#shutdown.begin();
  }

  /** Called before Nest stops serving requests: refuses new calls, and lets work under a lock finish. @internal */
  beforeApplicationShutdown(): Promise<void> {
    return this.#shutdown.drain();
  }

  /** Called when nothing runs any more: closes the connections. @internal */
  async onApplicationShutdown(): Promise<void> {
    await this.#shutdown.drain();
    await this.close(); // called by each module that has it, and there may be several
  }

  /** Closes the connections of a service whose locks are all released. @internal */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#shutdown.leave(this.#closable);
    await this.#engine.settled();
    await this.#backend.close();
    for (const election of this.#elections.values()) election.end();
    this.#events.complete();
    this.#telemetry.close();
  }

  /** How much it keeps in memory: 0 when nothing is held or waited for. @internal */
  get size(): number {
    return this.#engine.size;
  }

  /**
   * Not an async function: its hops would come between each answer and its waiter.
   * @param method where the lock is that of `@Locked`
   */
  #acquire(
    key: string,
    options: WithLockOptions | undefined,
    call: CallKind,
    method?: LockedMethod,
  ): Promise<LockHandle> {
    try {
      const request = this.#requestOf(options, call);
      checkKey(key);
      if (!this.#telemetry.ofAcquires) return this.#acquireChecked(key, request, call, method);
      const trace = this.#traceOf([key], request, method);
      return this.#telemetry.acquire(trace, goesOnWithout(call, method), () =>
        this.#acquireChecked(key, request, call, method),
      );
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  #acquireChecked(key: string, request: LockRequest, call: CallKind, method?: LockedMethod): Promise<LockHandle> {
    try {
      const since = request.holdMs ? this.#now() : 0;
      const held = this.#held.heldLeases();
      if (held) this.#checkOrder([key], request, held, method, this[call]);
      const lock = this.#acquireOne(key, request, held, method);
      return request.holdMs ? this.#kept(lock, request, since) : lock;
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  #acquireOneOrAll(
    key: string | readonly string[],
    options: WithLockOptions | undefined,
    method?: LockedMethod,
  ): Promise<Held> {
    return typeof key === 'string' || !Array.isArray(key)
      ? this.#acquire(key as string, options, 'withLock', method)
      : this.#acquireAll(key, options, 'withLock', method);
  }

  #acquireAll(
    given: readonly string[],
    options: WithLockOptions | undefined,
    call: CallKind,
    method?: LockedMethod,
  ): Promise<LockSetHandle> {
    try {
      if (!Array.isArray(given)) throw unfit('keys', given, 'an array of keys');
      const request = this.#requestOf(options, call);
      const keys = checkKeys(given);
      if (!this.#telemetry.ofAcquires) return this.#acquireSet(keys, request, call, method);
      const trace = this.#traceOf(keys, request, method);
      return this.#telemetry.acquire(trace, goesOnWithout(call, method), () =>
        this.#acquireSet(keys, request, call, method),
      );
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  async #acquireSet(
    keys: readonly string[],
    request: LockRequest,
    call: CallKind,
    method?: LockedMethod,
  ): Promise<LockSetHandle> {
    try {
      request.signal?.throwIfAborted();
      const held = this.#held.heldLeases();
      const entry = this[call === 'withLock' ? call : (`${call}All` as const)];
      this.#checkOrder(keys, request, held ?? [], method, entry);
      const one = (each: WaitingRequest) => (key: string) =>
        this.#acquireOne(key, each, this.#held.heldLeases(), method);
      const again = { ...request, since: this.#now() };
      const { signal } = request;
      const locks =
        request.waitMs > 0
          ? acquireAll(
              keys,
              one({ ...request, isProbe: true }),
              { tryAgain: one({ ...again, isProbe: true }), wait: one(again) },
              signal,
            )
          : acquireAll(keys, one(request), undefined, signal);
      const set = locks.then((all) => new LockSetHandle(all));
      return await (request.holdMs ? this.#kept(set, request, again.since) : set);
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  /** @throws LockOptionsError */
  #requestOf(options: WithLockOptions | undefined, call: CallKind): LockRequest {
    const defaults = call === 'tryAcquire' ? this.#onlyOnce : this.#options;
    if (options === undefined) return defaults;
    const request = resolveRequest(options, defaults, call);
    checkShortest(request.ttlMs, this.#shortestTtlMs);
    if (request.holdMs) checkHold(request.holdMs, this.#longestHoldMs);
    return request;
  }

  /**
   * Checks the order of the locks that a call waits for; one that does not wait cannot be part of a deadlock.
   * @param entry the method that was called
   */
  #checkOrder(
    keys: readonly string[],
    { waitMs }: LockRequest,
    held: readonly Lease[],
    method: LockedMethod | undefined,
    entry: (...args: never) => unknown,
  ): void {
    if (waitMs > 0) this.#order?.check(keys, held, method, entry);
  }

  /** @param held what the call holds already */
  #acquireOne(
    key: string,
    request: WaitingRequest,
    held: readonly Lease[] | undefined,
    method?: LockedMethod,
  ): Promise<LockHandle> {
    if (!held) return this.#join(key, request, method);
    const lease = held.find((each) => each.key === key);
    if (lease) return this.#acquireHeld(key, request, lease, method);
    return this.#join(key, underLocks(request, held), method);
  }

  /**
   * Has the store keep what was acquired for at least `holdMs`, before its caller gets it. It is kept from the moment on that
   * nothing else can refuse the call: what is given back before is released at once.
   * @param since when the call began, by the clock: its time counts from then
   */
  async #kept<H extends Held>(acquiring: Promise<H>, request: LockRequest, since: number): Promise<H> {
    const held = await acquiring;
    const { holdMs, signal } = request;
    const leases = leasesOf(held);
    let holds: Keeping[] = [];
    try {
      signal?.throwIfAborted();
      holds = leases.map((lease) => this.#engine.leases.hold(lease, holdMs!));
      await this.#confirmed(holds, request, since);
      signal?.throwIfAborted();
      if (this.#shutdown.closing.phase === 'closed') throw closed(leases[0]!.key);
      for (const hold of holds) hold.assertHeld();
      for (const hold of holds) hold.keep();
      return held;
    } catch (error) {
      void held.release(); // before its holds are given up: what has ended needs to be extended no more
      for (const hold of holds) hold.giveUp();
      const { key, label } = this.#engine.leases.identity(leases[0]!);
      const failure = failureEvent(error, { key, label, waitedMs: Math.round(this.#now() - since) });
      if (failure) this.#events.next(failure);
      return this.#engine.refuse(error);
    }
  }

  /** @throws LockUnavailableError, also when the time of the call is over; or the reason of its signal */
  #confirmed(holds: readonly Keeping[], request: LockRequest, since: number): Promise<unknown> {
    const askedAt = this.#now();
    const open = new Set(holds);
    const all = Promise.all(holds.map((hold) => hold.confirmed.then(() => open.delete(hold))));
    const leftMs = Math.max(0, timeOf(request, this.#backend) - (askedAt - since));
    const inItsTime = inTime<unknown>(all, Math.ceil(leftMs), () => {
      const [first] = open;
      throw notKept(first!.key, this.#now() - askedAt, request, this.#backend);
    });
    return unlessAborted(inItsTime, request.signal);
  }

  #join(key: string, request: WaitingRequest, method?: LockedMethod): Promise<LockHandle> {
    if (request.waitMs > 0 && this.#elections.get(key)?.isLeader) {
      return this.#engine.refuse(LockSelfDeadlockError.underLeader(key));
    }
    const { closing } = this.#shutdown;
    if (closing.phase !== 'closed') this.#transactions?.check(key, request.onTransaction, method?.name);
    return this.#engine.acquire(key, request, closing, request.label ?? method?.label);
  }

  async #acquireHeld(
    key: string,
    request: WaitingRequest,
    held: Lease | undefined,
    method?: LockedMethod,
  ): Promise<LockHandle> {
    const { signal } = request;
    try {
      signal?.throwIfAborted();
      for (; held?.state === 'unknown'; held = this.#held.heldLease(key)) {
        await unlessAborted(held.answered(), signal);
        signal?.throwIfAborted();
      }
    } catch (reason) {
      return this.#engine.refuse(reason);
    }
    if (!held) return this.#join(key, underLocks(request, this.#held.heldLeases()), method);
    if (!request.reentrant) return this.#engine.refuse(new LockSelfDeadlockError(key));
    return LockHandle.another(held, this.#engine.leases);
  }

  #electionOf(key: string, given: LeaderOptions): Election {
    checkKey(key);
    const options = resolveLeaderOptions(given, this.#options.marginMs, this.#shortestTtlMs);
    let election = this.#elections.get(key);
    if (!election) {
      const { newcomers: closing } = this.#shutdown;
      election = new Election({
        key,
        options,
        backend: this.#backend,
        engine: this.#engine,
        held: this.#held,
        closing,
      });
      this.#elections.set(key, election);
      outsideOfCalls(() => election!.begin());
    }
    election.refuseOthers(options);
    return election;
  }

  async #run<T, H extends Held>(
    acquired: H | Promise<H>,
    options: LossOptions | undefined,
    work: (held: H) => T | PromiseLike<T>,
  ): Promise<T> {
    const held = acquired instanceof Promise ? await acquired : acquired;
    const { onLost = this.#options.onLost } = options ?? {};
    let outcome: { status: 'fulfilled'; value: T } | { status: 'rejected'; reason: unknown };
    try {
      const result = this.#held.run(held, this.#observed(held, work));
      outcome = { status: 'fulfilled', value: isThenable(result) ? await result : result };
    } catch (reason) {
      outcome = { status: 'rejected', reason };
    }
    await held.release();
    const lost = onLost === 'reject' ? leasesOf(held).find((lease) => lease.isLost) : undefined;
    if (lost) throw lost.lostError(outcome satisfies LockOutcome);
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  }

  /** @returns the work, which is observed where anything observes work */
  #observed<T, H extends Held>(held: H, work: (held: H) => T | PromiseLike<T>): (held: H) => T | PromiseLike<T> {
    if (!this.#telemetry.ofHolds) return work;
    const [lease] = leasesOf(held);
    const { key, label, fencingToken } = this.#engine.leases.identity(lease!);
    const { registration } = this;
    const trace: HoldTrace =
      held instanceof LockSetHandle
        ? { registration, label, key, keys: held.keys }
        : { registration, label, key, fencingToken };
    return () => this.#telemetry.hold(trace, held, () => work(held));
  }

  #traceOf(keys: readonly string[], { label, ttlMs, waitMs }: LockRequest, method?: LockedMethod): AcquireTrace {
    const key = keys[0]!;
    const trace = {
      registration: this.registration,
      label: label ?? method?.label ?? this.#engine.leases.labels.of(key),
      key,
      ttlMs,
      waitMs,
    };
    return keys.length > 1 ? { ...trace, keys } : trace;
  }
}

/** Whether the caller goes on without the lock if another holder has it. */
function goesOnWithout(call: CallKind, method?: LockedMethod): boolean {
  const { onContended = 'throw' } = method ?? {};
  return call === 'tryAcquire' || onContended !== 'throw';
}

function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function';
}

function leasesOf(held: Held): Lease[] {
  return held instanceof LockSetHandle ? held.locks.map(({ lease }) => lease) : [held.lease];
}
