import { LockContendedError } from '../../api/errors.js';
import { failureEvent, type LockEvent, type LockGrant } from '../../api/events.js';
import { noteIn } from '../../api/holder.js';
import { EXCLUSIVE, type Hold, type LockBackend } from '../backend/lock-backend.js';
import type { LockEngine } from './lock-engine.js';
import { heldAs, type Lease } from './lease.js';
import { LockHandle } from './lock-handle.js';
import { monotonic } from '../time/clock.js';
import { yieldToEventLoop } from '../time/event-loop.js';
import { LinkedList, type Linked } from '../time/linked-list.js';
import { closed, lostBefore } from './refusals.js';

/** The request of one call. */
export interface WaitRequest {
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly watchdog: boolean;
  /** @default exclusive */
  readonly hold?: Hold;
  /** Whether the lock may be passed on within the process, to this call and from it. @default true */
  readonly cohort?: boolean;
  /** The store shows it with the lock. A lock is passed on only to calls with the same note. */
  readonly note?: string;
  /** The signal of the caller: the call rejects with its reason. */
  readonly signal?: AbortSignal;
  /** Since when the caller waits, by the clock of the service: an attempt was refused before, or it waited for another lock. */
  readonly since?: number;
  /** Whether the caller asks again, and waits, if others hold the lock. Then a refusal is not an event. @default false */
  readonly isProbe?: boolean;
  /** The keys that the call holds while it waits. A refusal names them. */
  readonly holding?: readonly string[];
}

/** How long a call may take, in milliseconds: without `waitMs` as long as an attempt. */
export function timeOf({ waitMs }: WaitRequest, backend: LockBackend): number {
  return waitMs > 0 ? waitMs : backend.attemptTimeoutMs();
}

/** How far the application has closed, for all calls of one kind. */
export class Closing {
  /** `waiting-ends`: free locks are granted, and no call waits. `closed`: no lock is granted. */
  phase: 'open' | 'waiting-ends' | 'closed' = 'open';
}

/** One call that wants a lock, until its line grants it a lease, or refuses it. */
export class Waiter implements Linked<Waiter> {
  readonly startedAt: number;
  /** When it started, by the monotonic clock: for the order of the calls of all processes. */
  readonly arrivedAt = monotonic();
  /** The lock that the call waits for. */
  readonly lock: Promise<LockHandle>;
  list?: LinkedList<Waiter>;
  next?: Waiter;
  previous?: Waiter;
  #resolve!: (lock: LockHandle | Promise<LockHandle>) => void;
  #reject!: (reason: unknown) => void;
  #isSettled = false;
  #mayGiveUp = false;
  #timer?: NodeJS.Timeout;
  #stopListening?: () => void;

  /** @throws the reason of a signal that has aborted */
  constructor(
    readonly key: string,
    readonly request: WaitRequest,
    readonly closing: Closing,
    private readonly engine: LockEngine,
    /** Undefined: the label is made from the key. */
    readonly label?: string,
  ) {
    request.signal?.throwIfAborted();
    this.startedAt = engine.now();
    this.lock = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Whether it was granted a lease, or refused. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  get waitedMs(): number {
    return this.engine.now() - (this.request.since ?? this.startedAt);
  }

  /** How long it may still wait, in milliseconds. */
  get remainingMs(): number {
    return Math.max(0, this.request.waitMs - this.waitedMs);
  }

  get hold(): Hold {
    return this.request.hold ?? EXCLUSIVE;
  }

  /** Whether it gives up at once if others hold the lock. */
  get triesOnce(): boolean {
    return this.request.waitMs === 0 || this.request.isProbe === true;
  }

  /** Whether it can use the grant, or the place, of an owner value: it wants to hold the lock in the same way, with the same note. */
  canUse(owner: string, held: Hold = EXCLUSIVE): boolean {
    return isSameHold(held, this.hold) && noteIn(owner) === this.request.note;
  }

  /** Whether permits for this call can serve the other one. */
  isInterchangeableWith({ request, hold }: Waiter): boolean {
    const { ttlMs, note } = this.request;
    return request.ttlMs === ttlMs && request.note === note && isSameHold(this.hold, hold);
  }

  /** Whether an earlier attempt for the same call has waited: for this key, or for another of its set. */
  get hasWaited(): boolean {
    return this.request.since !== undefined;
  }

  /** Whether `giveUpBy` was called. */
  get mayGiveUp(): boolean {
    return this.#mayGiveUp;
  }

  /**
   * Lets the call give up. The timer and the listener end when the call is settled.
   * @param timer the timer of its deadline
   * @param stopListening removes the listener from the signal of its caller
   */
  giveUpBy(timer: NodeJS.Timeout | undefined, stopListening: (() => void) | undefined): void {
    this.#mayGiveUp = true;
    this.#timer = timer;
    this.#stopListening = stopListening;
  }

  grant(lease: Lease, how: LockGrant): void {
    const { backend, events, leases } = this.engine;
    this.#settle();
    if (events.observed) {
      const waitedMs = Math.round(this.waitedMs);
      this.#emit({ type: 'acquired', waitedMs, grant: how, ...leases.identity(lease) });
    }
    const isSentLater = lease.provisionalTtlMs !== undefined && backend.sendsLater === true;
    this.#resolve(isSentLater ? this.#handleLater(lease, how) : this.#handleOf(lease, how));
  }

  refuse(reason: unknown): void {
    const { events, gate, inFlight } = this.engine;
    this.#settle();
    const isContended = reason instanceof LockContendedError;
    if (!isContended || (events.observed && !this.request.isProbe)) this.#emit(this.#failure(reason));
    gate.settle(reason, () => {
      this.#reject(reason);
      inFlight.end();
    });
  }

  #settle(): void {
    this.#isSettled = true;
    if (!this.#mayGiveUp) return;
    clearTimeout(this.#timer);
    this.#stopListening?.();
  }

  /** Lets the extension that confirms the grant be sent first: the work may block the process for longer than the grant lasts. */
  async #handleLater(lease: Lease, how: LockGrant): Promise<LockHandle> {
    await yieldToEventLoop();
    await yieldToEventLoop();
    if (lease.checkState() === 'unknown') await lease.untilAnswered(); // the process was busy until now
    return lease.checkHeld()
      ? this.#handleOf(lease, how)
      : this.#decline(lease, lostBefore('the call could begin', lease));
  }

  #handleOf(lease: Lease, how: LockGrant): LockHandle | Promise<never> {
    const { closing, engine, key, request } = this;
    // The call was refused at the moment when it was granted.
    if (closing.phase === 'closed') return this.#decline(lease, closed(key));
    if (request.signal?.aborted) return this.#decline(lease, request.signal.reason);
    engine.inFlight.end();
    return new LockHandle(lease, engine, how, request.ttlMs);
  }

  async #decline(lease: Lease, reason: unknown): Promise<never> {
    const { gate, inFlight, leases } = this.engine;
    await Promise.resolve(); // until the line has done its part
    void leases.release(lease, this.request.ttlMs).finally(() => inFlight.end());
    this.#emit(this.#failure(reason));
    return gate.refuse(reason);
  }

  #failure(reason: unknown): LockEvent | undefined {
    const { key, label = this.engine.leases.labels.of(key), waitedMs, hold } = this;
    return failureEvent(reason, { key, label, waitedMs: Math.round(waitedMs), ...heldAs(hold) });
  }

  /** Not at once: observers may ask for locks, and the line has not done its part yet. */
  #emit(event: LockEvent | undefined): void {
    if (event) void Promise.resolve(event).then((happened) => this.engine.events.next(happened));
  }
}

/** Whether a call that holds a lock in one way can pass it on to a call that wants it in the other. */
function isSameHold(held: Hold, wanted: Hold): boolean {
  if (held === wanted) return true;
  if (held.mode !== 'permits' || wanted.mode !== 'permits') return held.mode === wanted.mode;
  return held.permits === wanted.permits && held.limit === wanted.limit;
}

/** The waiters of one line, in the order of their arrival. */
export class WaiterList extends LinkedList<Waiter> {
  #triers = 0;

  /** How many of them do not wait for a lock that others hold. */
  get triers(): number {
    return this.#triers;
  }

  override push(waiter: Waiter): void {
    super.push(waiter);
    if (waiter.triesOnce) this.#triers++;
  }

  override remove(waiter: Waiter): void {
    super.remove(waiter);
    if (waiter.triesOnce) this.#triers--;
  }
}
