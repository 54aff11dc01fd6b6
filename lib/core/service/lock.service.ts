import { Subject, type Observable } from 'rxjs';
import type { AcquireOutcome, LockBackend } from '../backend/lock-backend.js';
import { checkKey } from '../keys/key.js';
import { diagnosisOf, REPORT_TIMEOUT_MS } from '../backend/report.js';
import type { LockDiagnosis, NodeReport } from '../../api/diagnosis.js';
import { LockContendedError, LockOptionsError, LockSelfDeadlockError, type LockOutcome } from '../../api/errors.js';
import type { LockEvent } from '../../api/events.js';
import type { Lease } from '../lease/lease.js';
import { Leases } from '../lease/leases.js';
import { LockHandle } from '../lease/lock-handle.js';
import type { Lock, LockInfo } from '../../api/lock.js';
import type { AcquireOptions, LossOptions, TryAcquireOptions, WithLockOptions } from '../../api/options.js';
import { ownerSequence } from '../backend/owner.js';
import { resolveRequest, type CallKind, type LockRequest } from '../options/call-options.js';
import type { ResolvedServiceOptions } from '../options/service-options.js';
import { HeldLocks } from './lock-context.js';
import { closed } from '../waiting/interruption.js';
import { lockInfo } from './lock-info.js';
import { LockCallers } from '../engine/lock-callers.js';
import { LockQueues } from '../waiting/lock-queues.js';
import { RefusalGate } from '../waiting/refusal-gate.js';
import type { Closable, Shutdown } from './shutdown.js';
import { TransactionCheck } from './transaction-check.js';
import { UnderWay } from '../time/in-flight.js';
import { Waiter } from '../waiting/waiter.js';

/** What is done under a lock. */
export type Work<T> = (lock: Lock) => T | PromiseLike<T>;

/** How long the lock stands that is taken to see whether locks can be had, in milliseconds, if it cannot be released. */
const PROBE_TTL_MS = 1_000;

/** What a lock service is made of. */
export interface LockServiceParts {
  backend: LockBackend;
  options: ResolvedServiceOptions;
  /** Name of the registration. */
  registration: string;
  /** The clock that the backend reads `sentAt` from, too, in milliseconds. */
  now: () => number;
  /** What its owner values begin with. */
  processName: string;
  /** That of the application, which closes all its lock services at once. */
  shutdown: Shutdown;
}

/** Acquires, keeps and releases locks. Inject it: `RedisLockModule` provides one for each registration. */
export class LockService {
  /** Name of the registration it belongs to. */
  readonly connection: string;
  /** What happens to the locks of this service; completes when the application has closed. */
  readonly events$: Observable<LockEvent>;

  readonly #options: ResolvedServiceOptions;
  /** The same for calls that do not wait. */
  readonly #onlyOnce: ResolvedServiceOptions;
  readonly #backend: LockBackend;
  readonly #callers: LockCallers;
  readonly #queues: LockQueues;
  readonly #leases: Leases;
  readonly #held = new HeldLocks();
  readonly #events = new Subject<LockEvent>();
  readonly #underWay = new UnderWay();
  /** By which each call is refused. */
  readonly #gate = new RefusalGate();
  readonly #transactions?: TransactionCheck;
  readonly #shutdown: Shutdown;
  readonly #closable: Closable;
  #closing?: Promise<void>;

  private constructor({ backend, options, registration, now, processName, shutdown }: LockServiceParts) {
    this.connection = registration;
    this.events$ = this.#events.asObservable();
    this.#options = options;
    this.#onlyOnce = { ...options, waitMs: 0 };
    this.#backend = backend;
    if (options.insideTransaction) {
      const warn = (key: string, message: string) => this.#emit(() => ({ type: 'warning', key, message }));
      this.#transactions = new TransactionCheck(options.insideTransaction, warn);
    }
    this.#leases = new Leases({ backend, guardMs: options.guardMs, now, emit: (event) => this.#emit(event) });
    this.#callers = new LockCallers(now, this.#leases, this.#events, this.#underWay, this.#gate);
    this.#queues = new LockQueues(
      {
        backend,
        now,
        limits: options,
        underWay: this.#underWay,
        leases: this.#leases,
      },
      processName,
    );
    this.#leases.listener = this.#queues;
    this.#shutdown = shutdown;
    this.#closable = {
      timeoutMs: options.shutdownTimeoutMs,
      held: this.#held,
      queues: this.#queues,
      leases: this.#leases,
    };
    shutdown.join(this.#closable);
  }

  /** @internal A lock module makes it. */
  static of(parts: LockServiceParts): LockService {
    return new LockService(parts);
  }

  /**
   * Acquires a lock, waiting for up to `waitMs` while somebody else holds it. Release it in a `finally`, or with
   * `await using`; `withLock` does that by itself.
   * @throws LockContendedError somebody else held it until `waitMs` were over
   * @throws LockUnavailableError the store could not be asked; not waited for beyond the time limit of one attempt
   * @throws LockSelfDeadlockError this call holds it already, with `reentrant: false`
   * @throws LockKeyError, LockOptionsError; or the reason of `signal`
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lock> {
    return this.#acquire(key, options, 'acquire');
  }

  /**
   * Acquires a lock if it is free; tries exactly once.
   * @returns null when somebody else holds it
   * @throws like `acquire`, except that contention is no error
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
   * Does the work under a lock: acquired before, kept while it runs, released after, whatever the outcome.
   * @returns what the work returned
   * @throws like `acquire`; what the work threw; LockLostError when the lock was lost meanwhile (see `onLost`)
   */
  withLock<T>(key: string, work: Work<T>): Promise<T>;
  withLock<T>(key: string, options: WithLockOptions, work: Work<T>): Promise<T>;
  async withLock<T>(key: string, ...rest: [Work<T>] | [WithLockOptions, Work<T>]): Promise<T> {
    const [options, work] = rest.length === 1 ? [undefined, rest[0]] : rest;
    if (typeof work !== 'function') {
      return this.#gate.refuse(
        new LockOptionsError(`withLock(key, options, work) needs a function as its last argument: got ${typeof work}.`),
      );
    }
    return this.#run(await this.#acquire(key, options, 'withLock'), options, work);
  }

  /**
   * Like `withLock`, for callers to whom a refusal is not the same as an error of the work.
   * @param onRefused is given what the call was refused with; what it returns or throws is the outcome
   * @param method `Class.method`, for messages
   * @internal
   */
  async withLockOr<T>(
    key: string,
    options: WithLockOptions | undefined,
    work: Work<T>,
    onRefused: (error: unknown) => T | PromiseLike<T>,
    method?: string,
  ): Promise<T> {
    let lock: LockHandle;
    try {
      lock = await this.#acquire(key, options, 'withLock', method);
    } catch (error) {
      return onRefused(error);
    }
    return this.#run(lock, options, work);
  }

  /**
   * The lock that this call runs under, by its async context: the innermost one, or the one of the key.
   * @throws LockOptionsError when this call runs under no such lock
   */
  current(key?: string): Lock {
    return this.#held.current(key);
  }

  /**
   * Who holds a lock, since when and for how long.
   * @returns null when it is free
   * @throws LockUnavailableError
   */
  async inspect(key: string): Promise<LockInfo | null> {
    const holding = await this.#ask(key, (backend) => backend.inspect(key));
    return holding ? lockInfo(key, holding, this.#queues.waiting(key)) : null;
  }

  /** Whether anybody holds the lock. @throws LockUnavailableError */
  async isLocked(key: string): Promise<boolean> {
    return (await this.#ask(key, (backend) => backend.inspect(key))) !== undefined;
  }

  /**
   * Takes a lock away from whoever holds it: in this process that is known at once, elsewhere at the next extension at the
   * latest, and at once by a process that waits, or has waited, for some lock. For people who know that the holder is gone.
   * @returns whether anybody held it
   * @throws LockUnavailableError
   */
  async forceRelease(key: string): Promise<boolean> {
    const taken = await this.#ask(key, (backend) => backend.forceRelease(key));
    const lease = this.#queues.lease(key); // passed on meanwhile, perhaps; or acquired since, by right
    if (lease && taken?.from.includes(lease.grant.owner)) this.#leases.lose(lease, 'expired');
    return taken !== undefined;
  }

  /**
   * Checks each server: whether it is reachable and set up safely, and which rights are missing. For a health page; the
   * start of the application does the same. Takes a second at most, and never rejects.
   * @typeParam Node what the backend tells of its servers, known to who has chosen it: `NodeDiagnosis` for those of Redis
   */
  async diagnose<Node extends NodeReport = NodeReport>(): Promise<LockDiagnosis<Node>> {
    return diagnosisOf(this.connection, await this.#backend.report(REPORT_TIMEOUT_MS)) as LockDiagnosis<Node>;
  }

  /**
   * Whether locks can be had, after they could not: takes one beside that of the key, on the same server. One that answers
   * may yet refuse to write. Never rejects; false when the application closes.
   * @internal
   */
  async isAvailable(key: string): Promise<boolean> {
    this.#underWay.begin();
    try {
      if (this.#shutdown.interruption.happened) return false;
      // The brace ends the hash tag: in a Cluster it is a lock of the same slot.
      const request = { key: `${key}}:probe`, owner: ownerSequence()(), ttlMs: PROBE_TTL_MS };
      const outcome = await new Promise<AcquireOutcome>((resolve) => this.#backend.acquire(request, resolve));
      if (outcome.status === 'acquired') {
        const { grant } = outcome;
        await new Promise((resolve) => this.#backend.release(grant, resolve));
      }
      return outcome.status !== 'unavailable'; // another process may be trying the same
    } catch {
      return false;
    } finally {
      this.#underWay.end();
    }
  }

  /** Nest calls it first when the application closes: asks work under a lock to end, and refuses those who wait. @internal */
  onModuleDestroy(): void {
    this.#shutdown.begin();
  }

  /** Nest calls it before it stops serving requests: gives out no lock any more, and lets work under a lock finish. @internal */
  beforeApplicationShutdown(): Promise<void> {
    return this.#shutdown.drain();
  }

  /** Nest calls it when nothing runs any more: closes the connections. @internal */
  async onApplicationShutdown(): Promise<void> {
    await this.#shutdown.drain();
    await this.close(); // several modules may have it, and each of them calls
  }

  /** Closes the connections of a service that gives out no lock. @internal */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#shutdown.leave(this.#closable);
    await this.#underWay.settled();
    await this.#backend.close();
    this.#events.complete();
  }

  /** How much it keeps in memory: 0 when nothing is held or waited for. @internal */
  get size(): number {
    return this.#queues.size + this.#leases.size;
  }

  /**
   * Not an async function: these hops would come between each answer and who waits for it.
   * @param method `Class.method`, where the lock is that of `@Locked`
   */
  #acquire(key: string, options: WithLockOptions | undefined, call: CallKind, method?: string): Promise<LockHandle> {
    try {
      const defaults = call === 'tryAcquire' ? this.#onlyOnce : this.#options;
      const request = options === undefined ? defaults : resolveRequest(options, defaults, call);
      checkKey(key);
      const held = this.#held.heldLease(key);
      return held ? this.#acquireHeld(key, request, held, method) : this.#join(key, request, method);
    } catch (error) {
      return this.#gate.refuse(error);
    }
  }

  #join(key: string, request: LockRequest, method?: string): Promise<LockHandle> {
    const { interruption } = this.#shutdown;
    if (interruption.isFinal) throw closed(key);
    this.#transactions?.check(key, request.onTransaction, method);
    const waiter = new Waiter(request, interruption, key, this.#callers);
    this.#underWay.begin();
    this.#leases.settle(); // a lease that was found lost in this very line is not in the way
    this.#queues.join(waiter);
    return waiter.lock;
  }

  async #acquireHeld(key: string, request: LockRequest, held: Lease | undefined, method?: string): Promise<LockHandle> {
    for (; held?.state === 'unknown'; held = this.#held.heldLease(key)) await held.answered();
    if (!held) return this.#join(key, request, method);
    if (!request.reentrant) return this.#gate.refuse(new LockSelfDeadlockError(key));
    return LockHandle.another(held, this.#leases);
  }

  async #ask<T>(key: string, question: (backend: LockBackend) => Promise<T>): Promise<T> {
    try {
      checkKey(key);
      return await question(this.#backend);
    } catch (error) {
      return this.#gate.refuse(error);
    }
  }

  async #run<T>(lock: LockHandle, options: LossOptions | undefined, work: Work<T>): Promise<T> {
    const { lease } = lock;
    const { onLost = this.#options.onLost } = options ?? {};
    let outcome: { status: 'fulfilled'; value: T } | { status: 'rejected'; reason: unknown };
    try {
      outcome = { status: 'fulfilled', value: await this.#held.run(lock, work) };
    } catch (reason) {
      outcome = { status: 'rejected', reason };
    }
    await lock.release();
    if (lease.isLost && onLost === 'reject') throw lease.lostError(outcome satisfies LockOutcome);
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  }

  #emit(event: () => LockEvent): void {
    if (this.#events.observed) this.#events.next(event());
  }
}
