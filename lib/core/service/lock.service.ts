import type { Observable } from 'rxjs';
import type { LockDiagnosis, LockPing, NodeReport } from '../../api/diagnosis.js';
import { LockContendedError, LockOptionsError, LockSelfDeadlockError, type LockOutcome } from '../../api/errors.js';
import type { LockEvent } from '../../api/events.js';
import type { Leader, LeaderOptions, Leadership } from '../../api/leader.js';
import type { Lock, LockInfo, LockList, LockSet, LockStats, Permit } from '../../api/lock.js';
import type { LockParcel, ParcelOptions } from '../../api/parcel.js';
import type {
  AcquireOptions,
  ListOptions,
  LossOptions,
  PermitOptions,
  ReleaseOptions,
  ScopeOptions,
  TryAcquireOptions,
  TryPermitOptions,
  WithLockOptions,
  WithPermitsOptions,
  WithPolicy,
} from '../../api/options.js';
import { EXCLUSIVE, type Hold, type LockBackend } from '../backend/lock-backend.js';
import { LockEngine, type EngineParts } from '../locks/lock-engine.js';
import { checkKey, checkKeys } from '../keys/key.js';
import { quoted } from '../../api/printable.js';
import { scopedKey } from '../keys/scope.js';
import type { Lease } from '../locks/lease.js';
import { leasesOf, LockHandle } from '../locks/lock-handle.js';
import { LockSetHandle, type Held } from '../locks/lock-set-handle.js';
import {
  checkBounds,
  checkTtl,
  permitsOf,
  resolveRequest,
  type AskedHold,
  type LockRequest,
} from '../options/call-options.js';
import { invalidOption } from '../options/checks.js';
import { resolveLeaderOptions } from '../options/leader-options.js';
import { checkParcel, checkParcelOptions } from '../options/parcel.js';
import type { CallKind } from '../options/option-rows.js';
import { checkPolicyBounds } from '../options/policies.js';
import type { ResolvedServiceOptions } from '../options/service-options.js';
import { yieldToEventLoop, outsideOfCalls } from '../time/event-loop.js';
import { unlessAborted } from '../locks/abort-listener.js';
import { acquireAll } from './acquire-all.js';
import type { Call } from './call.js';
import { Election } from './election.js';
import { LockAdmin } from './lock-admin.js';
import { LockContext } from './lock-context.js';
import { callSite, LockOrder, type AskingMethod } from './lock-order.js';
import { closeStore, type Closable, type Shutdown } from './shutdown.js';
import { acquires, holds, Telemetry } from './telemetry.js';
import { TransactionCheck } from './transaction-check.js';

/** A loss rejects no call: the signal and the state of the leadership report it. */
const IGNORE_LOSS: LossOptions = { onLost: 'ignore' };

/** The work of a call under its lock. */
export type Work<T> = (lock: Lock) => T | PromiseLike<T>;

/** The work of a call under its locks. */
export type WorkOfSet<T> = (locks: LockSet) => T | PromiseLike<T>;

/** A call with its options as the caller gave them. */
interface UnresolvedCall {
  /** The method that was called: it determines which options the call can have. */
  readonly kind: CallKind;
  readonly key: string | readonly string[];
  /** @default false */
  readonly isForSeveral?: boolean;
  readonly options: WithLockOptions | undefined;
  /** @default exclusive */
  readonly hold?: AskedHold;
  /** The method that asks by its decorator. */
  readonly method?: AskingMethod;
}

export interface LockServiceParts {
  backend: LockBackend;
  options: ResolvedServiceOptions;
  /** Name of the registration. */
  registration: string;
  /** The clock of the service and of its backend, in milliseconds. */
  now: () => number;
  /** The beginning of its owner values. */
  processName: string;
  /** The shutdown of the application, which closes all its lock services at once. */
  shutdown: Shutdown;
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
  /** The same events, for subscribers that do not need grants, releases and contention. @internal */
  readonly problems$: Observable<LockEvent>;

  readonly #options: ResolvedServiceOptions;
  /** The default options of each kind of call. */
  readonly #defaults: Readonly<Record<CallKind, ResolvedServiceOptions>>;
  readonly #backend: LockBackend;
  readonly #now: () => number;
  readonly #engine: LockEngine;
  readonly #admin: LockAdmin;
  readonly #context: LockContext;
  readonly #elections = new Map<string, Election>();
  readonly #telemetry: Telemetry;
  readonly #transactions?: TransactionCheck;
  readonly #order?: LockOrder;
  readonly #shutdown: Shutdown;
  readonly #closable: Closable;
  #closing?: Promise<void>;

  private constructor(parts: LockServiceParts) {
    const { backend, options, registration, now, processName, shutdown, engineOf } = parts;
    checkBounds(options, backend.bounds);
    checkPolicyBounds(options, backend.bounds);
    this.registration = registration;
    this.#options = options;
    this.#defaults = { withLock: options, acquire: options, tryAcquire: { ...options, waitMs: 0 } };
    this.#backend = backend;
    this.#now = now;
    this.#shutdown = shutdown;
    this.#context = new LockContext(shutdown);
    const engineParts = { backend, now, limits: options, processName, registration };
    const engine = engineOf?.(engineParts) ?? new LockEngine(engineParts);
    this.#engine = engine;
    this.#admin = new LockAdmin(registration, backend, engine, shutdown, (key, scope) => this.#keyOf(key, scope));
    this.#closable = { timeoutMs: options.shutdownTimeoutMs, engine, elections: this.#elections };
    shutdown.add(this.#closable);
    const { events } = engine;
    this.events$ = events.asObservable();
    this.problems$ = events.problems.asObservable();
    const { insideTransaction, lockOrder, telemetry } = options;
    if (insideTransaction) this.#transactions = new TransactionCheck(insideTransaction, events.warn);
    if (lockOrder !== 'off') this.#order = new LockOrder(lockOrder === 'warn' ? events.warn : undefined);
    this.#telemetry = new Telemetry(registration, engine);
    if (telemetry) {
      const clockErrorMs = () => engine.clockErrorMs;
      const locks = { registration, stats: () => this.#engine.stats(), ping: () => this.ping(), clockErrorMs };
      this.#telemetry.open(telemetry, locks);
    }
  }

  /** @internal A lock module makes it. @throws LockOptionsError for a `ttlMs` that the backend cannot serve */
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
    return this.#acquire<LockHandle>({ kind: 'acquire', key, options });
  }

  /**
   * Acquires a lock if it is free; tries exactly once.
   * @returns null if another holder has it
   * @throws like `acquire`, except that contention is not an error
   */
  tryAcquire(key: string, options?: TryAcquireOptions): Promise<Lock | null> {
    return nullIfContended(this.#acquire<LockHandle>({ kind: 'tryAcquire', key, options }));
  }

  /**
   * Acquires the locks of all keys, 1 to 100, or none: in one round trip if they are free. Otherwise it holds the locks before the
   * first one that is taken, and waits for that one, for at most `waitMs` milliseconds in total. All calls use the same order of
   * keys, so no two of them wait for each other. Work that acquires more locks under a lock can still cause a deadlock.
   * @throws like `acquire`; the error has the `key` of the lock that was refused
   */
  acquireAll(keys: readonly string[], options?: AcquireOptions): Promise<LockSet> {
    return this.#acquire<LockSetHandle>({ kind: 'acquire', key: keys, isForSeveral: true, options });
  }

  /**
   * Acquires the locks of all keys if all are free; tries exactly once.
   * @returns null if another holder has one of them
   * @throws like `acquireAll`, except that contention is not an error
   */
  tryAcquireAll(keys: readonly string[], options?: TryAcquireOptions): Promise<LockSet | null> {
    return nullIfContended(
      this.#acquire<LockSetHandle>({ kind: 'tryAcquire', key: keys, isForSeveral: true, options }),
    );
  }

  /**
   * Runs the work under a lock, which is acquired before, extended while the work runs, and released afterwards, whatever the
   * outcome. With a list of keys, runs it under all of their locks: see `acquireAll`.
   * @returns the result of the work
   * @throws like `acquire`; the error of the work; LockLostError if the lock was lost while the work ran (see `onLost`)
   */
  withLock<T>(keys: readonly string[], work: WorkOfSet<T>): Promise<T>;
  withLock<T>(keys: readonly string[], options: WithLockOptions, work: WorkOfSet<T>): Promise<T>;
  // Last, since some compilers show only the error of the last overload.
  withLock<T>(key: string, work: Work<T>): Promise<T>;
  withLock<T>(key: string, options: WithLockOptions, work: Work<T>): Promise<T>;
  // Not an async function, and no promise is awaited twice, here and below: each extra hop costs as much as the rest of the call.
  withLock<T>(
    key: string | readonly string[],
    ...rest: [(held: never) => T | PromiseLike<T>] | [WithLockOptions, (held: never) => T | PromiseLike<T>]
  ): Promise<T> {
    const [options, work] = rest.length === 1 ? [undefined, rest[0]] : rest;
    if (typeof work !== 'function') return this.#refuseWork('withLock(key, options, work)', work);
    const asked: UnresolvedCall = { kind: 'withLock', key, isForSeveral: Array.isArray(key), options };
    return this.#run(this.#acquire(asked), options, work as (held: Held) => T | PromiseLike<T>);
  }

  /**
   * Acquires permits of a key, waiting for up to `waitMs` milliseconds. All processes together hold at most `limit` permits of the key at a
   * time. No call overtakes another: a call that needs few permits waits behind an earlier one that needs many. A lock of the same key excludes
   * all permits. Release the permits in a `finally`, or with `await using`; `withPermits` does that by itself.
   * @throws LockContendedError if others held too many for the whole `waitMs`
   * @throws LockSelfDeadlockError if this call holds the lock of the key, or fewer permits of it: it would wait for itself
   * @throws LockOptionsError if `permits` is larger than `limit`, or for a store that has no permits, such as a Redlock
   * @throws LockUnavailableError, LockKeyError, or the reason of `signal`, like `acquire`
   */
  acquirePermits(key: string, options: PermitOptions): Promise<Permit> {
    return this.#acquirePermits('acquire', key, options);
  }

  /**
   * Acquires permits if they are free; tries exactly once.
   * @returns null if others hold too many, or wait
   * @throws like `acquirePermits`, except that contention is not an error
   */
  tryAcquirePermits(key: string, options: TryPermitOptions): Promise<Permit | null> {
    return nullIfContended(this.#acquirePermits('tryAcquire', key, options));
  }

  /**
   * Runs the work under permits, which are acquired before, extended while the work runs, and released afterwards, whatever the outcome.
   * @returns the result of the work
   * @throws like `acquirePermits`; the error of the work; LockLostError if the permits were lost while the work ran (see `onLost`)
   */
  withPermits<T>(key: string, options: WithPermitsOptions, work: (permit: Permit) => T | PromiseLike<T>): Promise<T> {
    if (typeof work !== 'function') return this.#refuseWork('withPermits(key, options, work)', work);
    return this.#run(this.#acquirePermits('withLock', key, options), options, work);
  }

  /**
   * Like `withLock`, for callers that must distinguish a refusal from an error of the work.
   * @param onRefused called with the reason of a refusal; its result or error is the outcome
   * @param method the method that is locked, for messages
   * @param hold how the lock is held; undefined: exclusively
   * @internal
   */
  withLockOr<T>(
    key: string | readonly string[],
    options: WithLockOptions | undefined,
    work: () => T | PromiseLike<T>,
    onRefused: (error: unknown) => T | PromiseLike<T>,
    method: AskingMethod,
    hold?: AskedHold,
  ): Promise<T> {
    const asked: UnresolvedCall = { kind: 'withLock', key, isForSeveral: Array.isArray(key), options, method, hold };
    return this.#run(this.#acquire(asked), options, work, onRefused);
  }

  /**
   * Takes over a lock that this process or another one has detached. The lock gets a new owner value and a larger fencing token, and is extended
   * like any other lock. Only one call can adopt a parcel. **Anyone who has a parcel can take the lock**: never adopt a parcel from an HTTP client
   * before you have checked that you issued it.
   * @param parcel what `lock.detach` returned, as an object
   * @throws LockLostError with the reason `stolen` if it was adopted before and the lock has an owner, and `expired` if the lock has ended,
   *   or was released
   * @throws LockUnavailableError if the store did not answer. If the lock may have been adopted, the library returns it to the parcel, with its
   *   remaining time, as soon as the store can be reached. Then it can be adopted again. If this process dies before that, the lock expires
   *   after that time, or after the `ttlMs` of this service if that is longer
   * @throws LockOptionsError for an invalid parcel, or on a Redlock
   */
  async adopt(parcel: LockParcel): Promise<Lock> {
    const lock = await this.#adopt(parcel);
    lock.watch();
    return lock;
  }

  /**
   * Adopts a detached lock, runs the work under it, and releases it afterwards, whatever the outcome: like `withLock`.
   * @returns the result of the work
   * @throws like `adopt`; the error of the work; LockLostError if the lock was lost while the work ran
   */
  withAdopted<T>(parcel: LockParcel, work: Work<T>): Promise<T> {
    if (typeof work !== 'function') return this.#refuseWork('withAdopted(parcel, work)', work);
    return this.#run(this.#adopt(parcel), undefined, work);
  }

  /**
   * Extends a detached lock to `ttlMs` from now, without adopting it: for a lock that a person or a workflow holds.
   * @throws LockLostError with the reason `stolen` if it was adopted, and `expired` if it has ended, or was released
   * @throws LockUnavailableError if the store did not answer: the lock then has its old or its new remaining time
   * @throws LockOptionsError for an invalid parcel, or an invalid `ttlMs`
   */
  async extend(parcel: LockParcel, options: ParcelOptions): Promise<void> {
    try {
      const { ttlMs } = checkParcelOptions('extend', options);
      checkTtl(ttlMs, this.#options.marginMs, this.#backend.bounds);
      await this.#engine.transfers.extend(this.#checkParcel(parcel), ttlMs);
    } catch (error) {
      await this.#engine.refuse(error);
    }
  }

  /**
   * Releases a detached lock, without adopting it: waiting calls get it.
   * @returns `true` if the lock was removed; `false` if the parcel no longer had it: it was adopted, has ended, or was released before
   * @throws LockUnavailableError if the store did not confirm it; the library repeats the release in the background
   * @throws LockOptionsError for an invalid parcel
   */
  async release(parcel: LockParcel): Promise<boolean> {
    try {
      return await this.#engine.transfers.release(this.#checkParcel(parcel));
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  /**
   * Returns the lock that this call runs under, by its async context: the innermost lock, or the lock of the key, with or without its scope.
   * @throws LockOptionsError if this call runs under no such lock; without a key, also if it runs under several locks that were acquired at once
   */
  current(key?: string): Lock {
    return this.#context.current(key);
  }

  /**
   * Takes part in the election of a key, from this call until the application closes. Only one of the participating processes leads at a
   * time. There is one election for each registration and key, however often you call this.
   *
   * The leader holds the lock of the key: `acquire` and similar calls wait for it, and fail in the process that leads.
   * @throws LockKeyError
   * @throws LockOptionsError for invalid options, or if the election began with other options
   */
  leader(key: string, options: LeaderOptions = {}): Leader {
    return this.#electionOf(key, options);
  }

  /**
   * Runs the work in each term of this process, with its own handle of the leader's lock. If the work throws, the process resigns, and
   * campaigns again after a pause.
   * @internal
   */
  whileLeader(key: string, options: LeaderOptions, work: (term: Leadership) => PromiseLike<unknown>): void {
    const underLock = (term: Leadership, lock: LockHandle) => this.#run(lock, IGNORE_LOSS, () => work(term));
    const election = this.#electionOf(key, options);
    outsideOfCalls(() => election.whileLeader(underLock));
  }

  /**
   * Runs the work if this process leads, with its own handle of the leader's lock.
   * @returns undefined if it does not lead
   * @throws LockLostError if the lock was lost while the work ran
   * @internal
   */
  async ifLeader<T>(key: string, options: LeaderOptions, work: Work<T>): Promise<T | undefined> {
    let running: Promise<T> | undefined;
    try {
      running = this.#electionOf(key, options).run((lock) => this.#run(lock, undefined, work));
    } catch (error) {
      return this.#engine.refuse(error);
    }
    if (!running) await yieldToEventLoop(); // otherwise a loop of such calls would block the event loop
    return running;
  }

  /**
   * Counts, for each label, the locks that this process holds, and its calls that wait. For gauges and monitoring.
   */
  stats(): LockStats[] {
    const stats = new Map<string, LockStats>();
    for (const { label, held, waiting } of this.#engine.stats()) {
      const { held: heldSoFar = 0, waiting: waitingSoFar = 0 } = stats.get(label) ?? {};
      stats.set(label, { label, held: held + heldSoFar, waiting: waiting + waitingSoFar });
    }
    return [...stats.values()];
  }

  /** The labels of the keys that calls of this process hold or wait for. @internal */
  labels(): Map<string, string> {
    return this.#engine.labels();
  }

  /**
   * Returns the holders of a lock, when they acquired it, when their leases expire, and which processes wait for it.
   * @returns null if the lock is free
   * @throws LockUnavailableError
   */
  inspect(key: string, options: ScopeOptions = {}): Promise<LockInfo | null> {
    return this.#admin.inspect(key, options);
  }

  /** Whether the lock has a holder, in any mode. For permits: whether at least one is taken. @throws LockUnavailableError */
  async isLocked(key: string, options: ScopeOptions = {}): Promise<boolean> {
    return (await this.#admin.inspect(key, options)) !== null;
  }

  /**
   * Lists the locks of all processes with the same `keyPrefix` that are held or kept now. For operators: this searches the store key
   * by key, including keys of other programs (docs/who-holds-what.md has the costs). The list has every lock that is held during the
   * whole search; a lock that is acquired or released meanwhile may be missing.
   * @throws LockUnavailableError if the store could not be searched, or its user lacks the right to search it: such a failure never
   *   makes the list partial
   * @throws LockOptionsError
   */
  list(options: ListOptions = {}): Promise<LockList> {
    return this.#admin.list(options);
  }

  /**
   * Takes a lock away from its holder, or from all holders. A holder in this process notices at once. A holder in another process notices at its
   * next extension at the latest, or at once if that process waits, or has waited, for any lock. The lock is lost with the
   * reason `forced`, or with the reason that the extension finds: `expired` or `stolen`. For operators who know that the holder is gone.
   * @param options.owner a `digest` that `inspect` returned: takes the lock only from this holder, not from others or later ones
   * @returns whether the lock had a holder; with `owner`, whether it had this holder
   * @throws LockUnavailableError; the release may then still happen
   * @throws LockOptionsError if `owner` is not a digest, such as the owner value of a `LockHolder`
   */
  forceRelease(key: string, options: ScopeOptions & { owner?: string } = {}): Promise<boolean> {
    return this.#admin.forceRelease(key, options);
  }

  /**
   * Checks each server: whether it is reachable and configured safely. For a health page; the
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
   * Whether locks are available again: acquires one on the server of the key, since a server that answers may still refuse writes. Never
   * rejects; false when the application closes.
   * @internal
   */
  async isAvailable(key: string): Promise<boolean> {
    return this.#context.closing.phase === 'open' && this.#engine.isAvailable(key);
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
    await this.close(); // each module with this service calls it, and there may be several
  }

  /** Closes the connections of a service whose locks are all released. @internal */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#shutdown.remove(this.#closable);
    try {
      await closeStore(this.#engine.backend, this.#engine.settled());
    } finally {
      for (const election of this.#elections.values()) election.end();
      this.#engine.events.complete();
      this.#telemetry.close();
    }
  }

  /** How much it keeps in memory: 0 when nothing is held or waited for. @internal */
  get size(): number {
    return this.#engine.size;
  }

  #refuseWork(call: string, work: unknown): Promise<never> {
    const got = work === null ? 'null' : typeof work;
    return this.#engine.refuse(new LockOptionsError(`${call} needs a function as its last argument: got ${got}.`));
  }

  /** Every call for locks comes here. Not an async function: its hops would delay each answer on the way to its waiter. */
  #acquire<H extends Held>(asked: UnresolvedCall): Promise<H>;
  #acquire(asked: UnresolvedCall): Promise<Held> {
    try {
      const call = this.#callOf(asked);
      const isObserved = this.#telemetry.observer !== undefined || acquires.hasSubscribers;
      const acquiring = isObserved ? this.#telemetry.acquire(call, () => this.#begin(call)) : this.#begin(call);
      return call.isWatched ? acquiring.then(watch) : acquiring;
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  /** @throws LockOptionsError, LockKeyError */
  #callOf(asked: UnresolvedCall): Call {
    const { kind, key, isForSeveral = false, options, method } = asked;
    const request = this.#requestOf(asked);
    if (isForSeveral && !Array.isArray(key)) throw invalidOption('keys', key, 'an array of keys');
    const keyOf = (each: string) => this.#keyOf(each, options?.scope, method?.keyStatus);
    const keys = isForSeveral ? checkKeys((key as readonly string[]).map(keyOf)) : [keyOf(key as string)];
    const { onContended = 'throw' } = method ?? {};
    return {
      keys,
      isForSeveral,
      request,
      label: request.label ?? method?.label,
      isOptional: kind === 'tryAcquire' || onContended !== 'throw',
      isWatched: kind !== 'withLock',
      method,
    };
  }

  /**
   * The key as the store has it.
   * @param scope the option `scope` of the call
   * @param status see `checkKey`
   * @throws LockKeyError
   */
  #keyOf(key: string, scope?: string | null, status?: 400 | 500): string {
    const { scope: scopeOfCall } = this.#options;
    if (scope !== undefined) return scopedKey(() => scope, key, status);
    if (scopeOfCall) return scopedKey(scopeOfCall, key, status);
    checkKey(key, status);
    return key;
  }

  /** @throws LockOptionsError */
  #requestOf({ kind, options, hold }: Omit<UnresolvedCall, 'key'>): LockRequest {
    const defaults = this.#defaults[kind];
    if (options === undefined && !hold) return defaults;
    const request = resolveRequest(options, defaults, kind, hold);
    checkBounds(request, this.#backend.bounds);
    const problem = request.hold && this.#unsupportedMode(request.hold);
    if (problem !== undefined) throw new LockOptionsError(problem);
    return request;
  }

  /** Why the store cannot hold locks in this mode, and what to do. */
  #unsupportedMode({ mode }: Hold): string | undefined {
    const { modes = [], whyOnlyExclusive = 'It supports only exclusive locks.' } = this.#backend;
    if (mode === 'exclusive' || modes.includes(mode)) return undefined;
    const what = mode === 'permits' ? 'permits' : 'shared locks';
    return `The store of this registration has no ${what}. ${whyOnlyExclusive}`;
  }

  /**
   * Checks the options of a decorated method once: invalid options would refuse all of its calls.
   * @returns the options of each call
   * @throws LockOptionsError
   * @internal
   */
  check(options: WithLockOptions | undefined, hold: AskedHold | undefined): LockRequest {
    return this.#requestOf({ kind: 'withLock', options, hold });
  }

  #begin(call: Call): Promise<Held> {
    const { keys, isForSeveral, request, method } = call;
    try {
      // A call that does not wait cannot be part of a deadlock.
      if (this.#order && request.waitMs > 0) {
        const held = this.#context.heldLeases() ?? [];
        this.#order.check(keys, held, method, () => callSite(this.#acquire, 1)); // oxlint-disable-line typescript/unbound-method -- for the stack
      }
      const isPlain = !isForSeveral && !request.holdMs && !request.maxHoldMs && !this.#order;
      return isPlain ? this.#acquireOne(keys[0]!, call) : this.#acquireMore(call);
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  /** Acquires several locks, or a lock with `holdMs` or `maxHoldMs`, or with a check of the order. */
  async #acquireMore(call: Call): Promise<Held> {
    try {
      const { keys, isForSeveral, request, method } = call;
      const since = this.#now();
      const one = (key: string, each: Call['request']) => this.#acquireOne(key, { ...call, request: each });
      const held = isForSeveral
        ? new LockSetHandle(await acquireAll(keys, request, since, one))
        : await one(keys[0]!, request);
      const { holdMs, maxHoldMs } = request;
      if (holdMs) await this.#engine.holdAtLeast(held, request, holdMs, since, this.#context.closing);
      if (maxHoldMs) held.endBy(this.#now() + maxHoldMs); // from now on: a handed-over lock may have begun earlier
      if (method) this.#order?.note(leasesOf(held), method);
      return held;
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  #acquireOne(key: string, call: Call): Promise<LockHandle> {
    const { request, method, label } = call;
    const held = this.#context.heldLeases();
    const lease = held?.find((each) => each.key === key);
    if (lease) return this.#acquireAgain(lease, call);
    if (request.waitMs > 0 && this.#elections.get(key)?.isLeader) {
      return this.#engine.refuse(LockSelfDeadlockError.underLeader(key));
    }
    const { closing } = this.#context;
    if (closing.phase !== 'closed') this.#transactions?.check(key, request.onTransaction, method);
    const asking = held ? { ...request, holding: held.map((each) => each.key) } : request;
    return this.#engine.acquire(key, asking, closing, label);
  }

  /** Acquires a lock that the call holds already, unless the lock turns out to be lost. */
  async #acquireAgain(lease: Lease, call: Call): Promise<LockHandle> {
    const { request } = call;
    const { signal, reentrant } = request;
    try {
      signal?.throwIfAborted();
      if (lease.checkState() === 'unknown' || lease.isDetaching) {
        await unlessAborted(lease.untilAnswered(), signal);
        return await this.#acquireOne(lease.key, call);
      }
      const why = nestingConflict(lease.grant.hold, request.hold);
      if (why !== undefined) throw new LockSelfDeadlockError(lease.key, why);
      if (request.maxHoldMs && lease.grant.hold?.mode === 'shared' && lease.demands.overstaysAt === Infinity)
        throw limitsOthers(lease.key);
      if (!reentrant) throw new LockSelfDeadlockError(lease.key);
      return LockHandle.another(lease, this.#engine, request.ttlMs);
    } catch (reason) {
      return this.#engine.refuse(reason);
    }
  }

  /** @returns a handle, which has all members of a permit */
  async #acquirePermits(kind: CallKind, key: string, options: PermitOptions | TryPermitOptions | WithPermitsOptions) {
    let permits: ReturnType<typeof permitsOf>;
    try {
      permits = permitsOf(options);
    } catch (error) {
      return this.#engine.refuse(error);
    }
    const { hold, rest } = permits;
    return (await this.#acquire<LockHandle>({ kind, key, options: rest, hold })) as LockHandle & Permit;
  }

  /** @throws LockOptionsError, LockKeyError */
  #checkParcel(given: LockParcel): LockParcel {
    const parcel = checkParcel(given);
    checkKey(parcel.key);
    return parcel;
  }

  async #adopt(given: LockParcel): Promise<LockHandle> {
    try {
      const parcel = this.#checkParcel(given);
      const { key } = parcel;
      const { closing } = this.#context;
      if (closing.phase !== 'closed') this.#transactions?.check(key, this.#options.onTransaction, undefined);
      const adopt = () => this.#engine.transfers.adopt(parcel, this.#options, closing);
      const isObserved = this.#telemetry.observer !== undefined || acquires.hasSubscribers;
      return await (isObserved
        ? this.#telemetry.acquire({ keys: [key], request: this.#defaults.tryAcquire, isOptional: false }, adopt)
        : adopt());
    } catch (error) {
      return this.#engine.refuse(error);
    }
  }

  #electionOf(key: string, given: LeaderOptions): Election {
    checkKey(key);
    const options = resolveLeaderOptions(given, this.#options.marginMs, this.#backend.bounds);
    let election = this.#elections.get(key);
    if (!election) {
      election = new Election(key, options, {
        engine: this.#engine,
        held: this.#context,
        closing: this.#shutdown.newcomers,
        handsOver: this.#backend.waitQueue?.handsOver === true,
      });
      this.#elections.set(key, election);
      outsideOfCalls(() => election!.begin());
    }
    election.refuseOthers(options);
    return election;
  }

  /** Runs work under the locks of its call. @param onRefused called with a refusal: its result or error is the outcome */
  async #run<T, H extends Held>(
    acquired: H | Promise<H>,
    options: (LossOptions & ReleaseOptions & WithPolicy) | undefined,
    work: (held: H) => T | PromiseLike<T>,
    onRefused?: (error: unknown) => T | PromiseLike<T>,
  ): Promise<T> {
    // Before the work, which could change the options. The call has checked them.
    const ofPolicy = options?.policy === undefined ? undefined : this.#options.policies.get(options.policy);
    const { onLost = this.#options.onLost, awaitRelease = ofPolicy?.awaitRelease ?? true } = options ?? {};
    let held: H;
    try {
      held = acquired instanceof Promise ? await acquired : acquired;
    } catch (error) {
      if (!onRefused) throw error;
      return onRefused(error);
    }
    const isObserved = this.#telemetry.observer?.hold !== undefined || holds.hasSubscribers;
    const run = isObserved ? () => this.#telemetry.hold(held, () => work(held)) : work;
    let outcome: { status: 'fulfilled'; value: T } | { status: 'rejected'; reason: unknown };
    try {
      const result = this.#context.run(held, run);
      outcome = { status: 'fulfilled', value: isThenable(result) ? await result : result };
    } catch (reason) {
      outcome = { status: 'rejected', reason };
    }
    const released = held.release();
    // A lease is still alive if an outer call holds it, or if its release has to wait for the answer to an extension.
    if (awaitRelease || leasesOf(held).some((lease) => lease.checkAlive())) await released;
    const lost = onLost === 'reject' ? leasesOf(held).find((lease) => lease.checkLost()) : undefined;
    if (lost) throw lost.lostError(outcome satisfies LockOutcome);
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  }
}

/** Why a call that holds a lock in one way cannot have it in another, and what to do. */
function nestingConflict(held: Hold = EXCLUSIVE, wanted: Hold = EXCLUSIVE): string | undefined {
  if (held.mode === 'permits' && wanted.mode === 'permits') {
    if (wanted.permits <= held.permits) return undefined;
    return (
      `is held by this call with ${held.permits} of its permits, and the call asks for ${wanted.permits} more: calls that do so wait for each ` +
      'other. Take all permits that the call needs at once.'
    );
  }
  if (held.mode === wanted.mode || (held.mode === 'exclusive' && wanted.mode === 'shared')) return undefined;
  return (
    `is held by this call in mode ${held.mode}, and the call asks for mode ${wanted.mode}: it would wait for itself. Release the lock first, or ` +
    'use another key.'
  );
}

function limitsOthers(key: string): LockOptionsError {
  return new LockOptionsError(
    `A nested call cannot set maxHoldMs for the shared lock ${quoted(key)}: the lock would end for the outer call, too. ` +
      'Set maxHoldMs in the outer call.',
  );
}

async function nullIfContended<T>(acquiring: Promise<T>): Promise<T | null> {
  try {
    return await acquiring;
  } catch (error) {
    if (error instanceof LockContendedError) return null;
    throw error;
  }
}

/** The caller has to release these locks. */
function watch(held: Held): Held {
  const locks = held instanceof LockSetHandle ? held.locks : [held];
  for (const lock of locks) lock.watch();
  return held;
}

function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function';
}
