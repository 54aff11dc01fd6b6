import type { AcquireOutcome, AcquireRequest, LockBackend, Place, WaitListener } from '../backend/lock-backend.js';
import { BackOff } from './back-off.js';
import { CHECK_MS, Checks, type Check } from './checks.js';

/** A wait until the holder's lease ends must find it ended. */
const AFTER_EXPIRY_MS = 1;

/** Hears from the wait queue of the backend, and from contenders. */
export interface ContendersListener<Waiter> extends WaitListener {
  /** A contender that waits, or rests, is to ask again; or one that asks has been doing so for `CHECK_MS`. */
  onDue(contender: Contender<Waiter>): void;
}

/** All contenders of a service: one with a place in the queue of the store is found by its ticket. */
export class Contenders<Waiter> {
  readonly byTicket = new Map<string, Contender<Waiter>>();
  /** Of those that wait for a message, and of those that ask for waiters which have no timer yet. */
  readonly checks: Checks;

  constructor(
    readonly backend: LockBackend,
    readonly now: () => number,
    /** Makes the owner values of attempts, and the tickets of places. */
    readonly nextOwner: () => string,
    readonly listener: ContendersListener<Waiter>,
    /** Whether a key may have several. Then the key is checked each second, and each of them less often. */
    readonly areMany: boolean,
  ) {
    this.checks = new Checks(now);
  }
}

/**
 * One contender for a lock, among those of all processes: it makes one attempt at a time on behalf of a waiter, and keeps the
 * place in the queue of the store between them. It is passive: the queue of its key makes the attempts that it describes.
 *
 * `idle ── ask ──▶ asking ── answered ──▶ idle ── wait ──▶ waiting ── ask ──▶ asking`
 *
 * - `idle`: no attempt is in flight, and no turn is waited for. A contender that rests after a split vote is idle, too:
 *   there chance alone must decide which contender is first, not the order in which they are woken.
 * - `asking`: an attempt is in flight.
 * - `waiting`: it asks again when it is woken, or when its pause is over.
 */
export class Contender<Waiter> implements Check {
  /** The waiter that it asks for; undefined when that one gave up during an attempt, and no other has taken it over. */
  waiter?: Waiter;
  list?: { remove(check: Check): void };
  next?: Check;
  previous?: Check;
  dueAt = 0;
  #state: 'idle' | 'asking' | 'waiting' = 'idle';
  #attemptedAt = 0;
  #place?: { -readonly [Each in keyof Place]: Place[Each] };
  /** Whether the store is known to have the place in its queue. */
  #isQueued = false;
  /** When it was about to ask with this place, if that happened once: another attempt may have ended a grant. */
  #askedOnceAt?: number;
  #latestToken?: number;
  /** Whether it was woken since it last began to ask: the answer in flight may be older than that. */
  #isWoken = false;
  /** Whether it was woken before it last began to ask. */
  #wasWoken = false;
  #timer?: NodeJS.Timeout;
  #backOff?: BackOff;

  constructor(
    readonly key: string,
    private readonly all: Contenders<Waiter>,
  ) {}

  /** Whether its attempt is of use: asked when that has waited in this process, and is about to be sent. */
  get isWanted(): boolean {
    return this.waiter !== undefined;
  }

  get isAsking(): boolean {
    return this.#state === 'asking';
  }

  get isWaiting(): boolean {
    return this.#state === 'waiting';
  }

  /** Whether it lets time go by before it asks again: it waits, or rests. */
  get isPausing(): boolean {
    return !this.isAsking && (this.#timer !== undefined || this.list !== undefined);
  }

  /** Whether it has a place in the queue of the store, or would have one by its next attempt. */
  get hasPlace(): boolean {
    return this.#place !== undefined;
  }

  /** When its latest attempt was about to be sent. */
  get attemptedAt(): number {
    return this.#attemptedAt;
  }

  /** The earliest time from which a lock counts that was handed over to it; undefined when that is not certain. */
  get handedOverSince(): number | undefined {
    return this.#askedOnceAt;
  }

  /** How far the tokens of the store had come when it last answered. */
  get latestToken(): number | undefined {
    return this.#latestToken;
  }

  /**
   * Begins an attempt.
   * @param turns for how many turns of waiters the lock is; with it comes a place in the queue, if the lock is not free
   */
  ask(ttlMs: number, turns?: number): AcquireRequest {
    const { backend, now, nextOwner } = this.all;
    const { waitQueue } = backend;
    this.#stopWaiting();
    this.#state = 'asking';
    this.#wasWoken = this.#isWoken;
    this.#isWoken = false;
    const place = turns === undefined || !waitQueue ? undefined : { ...this.#takePlace() };
    const owner = place && waitQueue?.handsOver ? place.ticket : nextOwner();
    this.#attemptedAt = now();
    this.#askedOnceAt = place && this.#isQueued ? undefined : this.#attemptedAt;
    return { key: this.key, owner, ttlMs, place, turns, asker: this };
  }

  /** Its attempt was answered. */
  answered(outcome: AcquireOutcome): void {
    this.#state = 'idle';
    this.list?.remove(this);
    switch (outcome.status) {
      case 'acquired':
        // The grant came without a message.
        if (this.#isQueued && !this.#wasWoken) this.all.backend.waitQueue?.checkListening(this.key);
        this.#dropPlace();
        break;
      case 'contended':
        this.#noteQueued(outcome);
        if (outcome.isRepeated) this.#askedOnceAt = undefined;
        this.#latestToken = outcome.latestToken;
        break;
      case 'unavailable':
        this.#leavePlace();
        break;
    }
  }

  /**
   * Prepares to wait after a refusal.
   * @param isFirst whether it is the first of this process: it asks when the holder's lease ends, on behalf of all
   * @returns for how long, in milliseconds, `Infinity`: until it is woken, or checked; undefined when it has to ask again at once
   */
  pauseMs(
    refusal: Extract<AcquireOutcome, { status: 'contended' }>,
    answeredAt: number,
    isFirst: boolean,
  ): number | undefined {
    const { remainingMs, queued } = refusal;
    const { waitQueue } = this.all.backend;
    if (waitQueue && !waitQueue.isListening(this.key)) waitQueue.listen(this.key, this.all.listener);
    const isListening = waitQueue?.isListening(this.key) ?? false;
    // A contender without a place in the queue is not woken: it takes one at once.
    if (this.#isWoken || (!this.#place && isListening && remainingMs !== undefined)) return undefined;
    if (!queued || !isListening || remainingMs === undefined)
      return (this.#backOff ??= new BackOff()).next(remainingMs, answeredAt - this.#attemptedAt);
    const leaseEndsMs = Math.max(0, remainingMs) + AFTER_EXPIRY_MS;
    return isFirst && leaseEndsMs < CHECK_MS ? leaseEndsMs : Infinity;
  }

  /**
   * Waits until it is woken, or its pause is over.
   * @param isSplit the vote was split: only the time ends the pause
   */
  wait(pauseMs: number, isSplit: boolean): void {
    if (pauseMs === Infinity) this.all.checks.add(this, this.all.areMany ? 'other' : 'key');
    else this.#timer = setTimeout(Contender.#pauseIsOver, pauseMs, this);
    if (!isSplit) this.#state = 'waiting';
  }

  onDue(): void {
    this.all.listener.onDue(this);
  }

  /** Its turn may have come. @returns whether it waits for that; otherwise it is remembered for the answer in flight */
  wake(): boolean {
    this.#isWoken = true;
    return this.#state === 'waiting';
  }

  /** The lock that it waited for is its own. */
  won(): void {
    this.#stopWaiting();
    this.#dropPlace();
  }

  /** No waiter is left that it could ask for. */
  withdraw(): void {
    this.#stopWaiting();
    this.#leavePlace();
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.list?.remove(this);
    this.#state = 'idle';
  }

  // One function for all, as a closure for each contender is memory that lives as long as it waits.
  static readonly #pauseIsOver = (contender: Contender<unknown>): void => contender.onDue();

  #takePlace(): Place {
    if (!this.#place) {
      const { byTicket, nextOwner } = this.all;
      this.#place = { ticket: nextOwner() };
      byTicket.set(this.#place.ticket, this);
    }
    return this.#place;
  }

  #noteQueued({ queued, number }: Extract<AcquireOutcome, { status: 'contended' }>): void {
    this.#isQueued ||= queued;
    if (queued && this.#place) this.#place.number = number ?? this.#place.number ?? 0;
  }

  #leavePlace(): void {
    if (this.#place && this.#isQueued) this.all.backend.waitQueue?.leave(this.key, this.#place);
    this.#dropPlace();
  }

  #dropPlace(): void {
    if (!this.#place) return;
    this.all.byTicket.delete(this.#place.ticket);
    this.#place = undefined;
    this.#isQueued = false;
  }
}
