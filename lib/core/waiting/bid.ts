import { monotonic } from '../time/clock.js';
import {
  type AcquireOutcome,
  type AcquireRequest,
  type HandOver,
  type Hold,
  type Place,
} from '../backend/lock-backend.js';
import type { LockEngine } from '../engine/lock-engine.js';
import type { Paced } from '../time/pacer.js';

/**
 * The period of the checks of a bid, in milliseconds: shorter than a grant that is not confirmed stands, so that no waiter is stuck
 * for longer than that, whatever message, queue or lock was lost.
 */
export const CHECK_MS = 1_000;
/** A wait until the holder's lease ends must find it ended. */
const AFTER_EXPIRY_MS = 1;
/** The first pause of a bid that cannot be woken, and the longest, in milliseconds, on average. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [8, 250];
/** The first pause of a bid whose process asks for all locks together, in milliseconds, on average. */
const FIRST_POLL_MS = 2;

/** The call on whose behalf a bid asks. */
export interface Asking {
  readonly request: Pick<AcquireRequest, 'ttlMs'>;
  readonly hold: Hold;
  /** When it came, by the monotonic clock. */
  readonly arrivedAt: number;
}

/** Makes the attempts that a bid describes. */
export interface Bidder {
  readonly key: string;
  /** Whether an attempt is of use: asked when it has waited in this process, and is about to be sent. */
  readonly isWanted: boolean;
  /** The turn of the bid, which waits, may have come. @param handOver the lock was handed over to it */
  onTurn(handOver?: HandOver): void;
  /** The bid, which waits or rests, is to ask again; or it has been asking for a while. */
  onDue(): void;
}

/**
 * The bid of a process for one lock, among those of all processes: it makes one attempt at a time on behalf of the first call that
 * waits, and keeps the place in the queue of the store between them. It is passive: its line makes the attempts that it describes.
 *
 * ```
 * asking  ──▶ queued    refused: it asks again when it is woken, or when its pause is over
 * asking  ──▶ resting   a tie, which nobody won: chance alone must decide who is first, so only time ends its pause
 * queued  ──▶ asking
 * resting ──▶ asking
 * ```
 */
export class Bid implements Paced<Bid> {
  list?: { remove(bid: Bid): void };
  next?: Bid;
  previous?: Bid;
  dueAt = 0;
  #state: 'asking' | 'queued' | 'resting' = 'asking';
  #attemptedAt = 0;
  #place?: Place;
  /** When the place was first asked for, by the monotonic clock. */
  #placeAskedAt = 0;
  /** Whether it was woken since it last began to ask: the answer in flight may be older than that. */
  #isWoken = false;
  /** Whether it was woken before it last began to ask. */
  #wasWoken = false;
  #timer?: NodeJS.Timeout;
  #backOff?: BackOff;

  constructor(
    readonly bidder: Bidder,
    private readonly engine: LockEngine,
  ) {}

  get isAsking(): boolean {
    return this.#state === 'asking';
  }

  /** Its place in the queue of the store, if it has one there, or would have by its next attempt. */
  get place(): Place | undefined {
    return this.#place;
  }

  /** When its latest attempt was about to be sent. */
  get attemptedAt(): number {
    return this.#attemptedAt;
  }

  /**
   * Begins an attempt on behalf of the first call that waits.
   * @param turns for how many turns of calls of this process; with a place in the queue, unless undefined, if the lock is not free
   * @param beside for how many more calls that want the same, if there is room
   */
  ask({ request, hold, arrivedAt }: Asking, turns: number | undefined, beside: number): AcquireRequest {
    const { backend, now, nextOwner, order } = this.engine;
    const { key } = this.bidder;
    const { waitQueue } = backend;
    this.#stopWaiting();
    this.#state = 'asking';
    this.#wasWoken = this.#isWoken;
    this.#isWoken = false;
    const place = turns === undefined || !waitQueue ? undefined : this.#takePlace(hold, turns, arrivedAt);
    const owner = place && waitQueue?.handsOver ? place.ticket : nextOwner();
    this.#attemptedAt = now();
    const others = beside > 0 ? Array.from({ length: beside }, nextOwner) : undefined;
    const { ttlMs } = request;
    return { key, hold, owner, others, ttlMs, place, turns, inOrder: order.isByArrival, asker: this.bidder };
  }

  /** Its attempt was answered. */
  answered(outcome: AcquireOutcome): void {
    this.engine.checks.remove(this);
    switch (outcome.status) {
      case 'acquired':
        // The grant came without a message.
        if (this.#place?.isTaken && !this.#wasWoken) this.engine.backend.waitQueue?.checkListening(this.bidder.key);
        this.#dropPlace();
        break;
      case 'contended':
        if (this.#place && outcome.queued) this.#place = { ...this.#place, isTaken: true, hint: outcome.hint };
        break;
      case 'unavailable':
        this.#leavePlace();
        break;
    }
  }

  /**
   * Prepares to wait after a refusal.
   * @returns for how long, in milliseconds, `Infinity`: until it is woken, or checked; undefined when it has to ask again at once
   */
  pauseMs(refusal: Extract<AcquireOutcome, { status: 'contended' }>, answeredAt: number): number | undefined {
    const { remainingMs, queued } = refusal;
    const { waitQueue } = this.engine.backend;
    const isListening = waitQueue?.isListening(this.bidder.key) ?? false;
    // A bid takes its place at once, also before messages arrive: after a pause by chance, calls for another mode would come first.
    if (this.#isWoken || (waitQueue && !this.#place && remainingMs !== undefined)) return undefined;
    if (!queued || !isListening || remainingMs === undefined)
      return (this.#backOff ??= new BackOff(this.engine.backend.pollEveryMs)).next(
        remainingMs,
        answeredAt - this.#attemptedAt,
      );
    const leaseEndsMs = Math.max(0, remainingMs) + AFTER_EXPIRY_MS;
    return leaseEndsMs < CHECK_MS ? leaseEndsMs : Infinity;
  }

  /**
   * Waits until it is woken, or its pause is over.
   * @param isTied nobody won: only the time ends the pause
   */
  wait(pauseMs: number, isTied: boolean): void {
    if (pauseMs === Infinity) this.checkAfter(this.engine.now());
    else this.#timer = setTimeout(Bid.#pauseIsOver, pauseMs, this);
    this.#state = isTied ? 'resting' : 'queued';
  }

  /** Has it come due `CHECK_MS` after this time, unless it begins to ask before, or its attempt is answered. */
  checkAfter(time: number): void {
    this.engine.checks.add(this, time + CHECK_MS, CHECK_MS);
  }

  /** Its turn may have come. @returns whether it waits for that; otherwise it is remembered for the answer in flight */
  wake(): boolean {
    this.#isWoken = true;
    return this.#state === 'queued';
  }

  /** The lock that it waited for is its own. */
  won(): void {
    this.#stopWaiting();
    this.#dropPlace();
  }

  /** No call is left that it could ask for. */
  withdraw(): void {
    this.#stopWaiting();
    this.#leavePlace();
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.engine.checks.remove(this);
  }

  // One function for all, as a closure for each bid is memory that lives as long as it waits.
  static readonly #pauseIsOver = (bid: Bid): void => bid.engine.checks.hurry([bid]);

  /** @returns the place as it is asked for now: its calls, its time, and what the store said of it, may be others in the next attempt */
  #takePlace(hold: Hold, turns: number, firstArrivedAt: number): Place {
    const { byTicket, nextOwner, order } = this.engine;
    // The call that it was taken for has given up.
    if (this.#place && !isSameHold(this.#place.hold, hold)) this.#leavePlace();
    if (!this.#place) {
      this.#placeAskedAt = monotonic();
      const ticket = nextOwner();
      this.#place = { ticket, hold, turns, calls: 0, arrivedAt: 0, isTaken: false };
      byTicket.set(ticket, this);
    }
    const arrivedAt = order.placeAt(firstArrivedAt, this.#placeAskedAt);
    const calls = this.engine.waiting(this.bidder.key);
    return (this.#place = { ...this.#place, calls, arrivedAt });
  }

  #leavePlace(): void {
    if (this.#place?.isTaken) this.engine.backend.waitQueue?.leave(this.bidder.key, this.#place);
    this.#dropPlace();
  }

  #dropPlace(): void {
    if (!this.#place) return;
    this.engine.byTicket.delete(this.#place.ticket);
    this.#place = undefined;
  }
}

/**
 * How long the bid of a process waits before it asks again: jittered, growing, never past the end of the
 * holder's lease.
 */
export class BackOff {
  #nextMs: number;

  /** @param pollEveryMs as of the backend */
  constructor(private readonly pollEveryMs?: number) {
    this.#nextMs = pollEveryMs === undefined ? FIRST_PAUSE_MS : FIRST_POLL_MS;
  }

  /**
   * @param remainingMs how long the holder's lease runs; undefined after a tie, when there is no holder
   * @param attemptMs how long the attempt took: after a tie the bids back off for some round trips
   */
  next(remainingMs: number | undefined, attemptMs: number): number {
    if (remainingMs === undefined) return (1 + Math.random() * 8) * Math.max(1, attemptMs);
    const { pollEveryMs = Infinity } = this;
    const isTogether = this.#nextMs >= pollEveryMs;
    const delayMs = isTogether ? pollEveryMs - (monotonic() % pollEveryMs) : this.#nextMs * (0.5 + Math.random());
    this.#nextMs = Math.min(LONGEST_PAUSE_MS, pollEveryMs, this.#nextMs * 1.5);
    return Math.min(delayMs, Math.max(0, remainingMs) + AFTER_EXPIRY_MS);
  }
}

/** Whether who holds a lock so can pass it on to who wants it so. */
export function isSameHold(held: Hold, wanted: Hold): boolean {
  if (held === wanted) return true;
  if (held.mode !== 'permits' || wanted.mode !== 'permits') return held.mode === wanted.mode;
  return held.permits === wanted.permits && held.limit === wanted.limit;
}
