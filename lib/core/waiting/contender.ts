import type {
  AcquireOutcome,
  AcquireRequest,
  HandOver,
  LockBackend,
  Place,
  WaitListener,
  WaitQueue,
} from '../backend/lock-backend.js';
import type { UnderWay } from '../time/in-flight.js';
import { BackOff } from './back-off.js';
import type { Waiter } from './waiter.js';

/**
 * Who waits asks again after this time at the latest, in milliseconds: shorter than a grant that is not confirmed
 * stands, so that nobody is stuck for longer than that, whatever message, queue or lock was lost.
 */
const CHECK_MS = 1_000;
/** A wait at the end of the holder's lease must find it ended. */
const AFTER_EXPIRY_MS = 1;

/** What the contenders of a service need of the world. */
export interface ContenderDuties {
  backend: LockBackend;
  now: () => number;
  nextOwner: () => string;
  underWay: UnderWay;
  /** Finds the contender of a ticket that is woken. */
  contenders: Map<string, Contender>;
  /** What the wait queue of the backend reports to. */
  listener: WaitListener;
}

/** What a contender tells the queue that it stands for. */
export interface ContenderOwner {
  /** It is to ask again. */
  onTurn(contender: Contender): void;
  /** The lock was handed over to its ticket, some time after `sentAt`. */
  onHandOver(contender: Contender, handOver: HandOver, sentAt: number): void;
  onOutcome(contender: Contender, request: AcquireRequest, outcome: AcquireOutcome, attemptedAt: number): void;
}

/**
 * A place among those who want a lock, all processes taken together: it asks for the lock, one attempt at a time, and
 * waits until it is woken, until the holder's lease ends, or until it is time to see for itself.
 */
export class Contender {
  #place?: { -readonly [Each in keyof Place]: Place[Each] };
  /** When it was about to ask with this place, if that happened once: another attempt may have ended a grant. */
  #askedOnceAt?: number;
  #queued = false;
  #isAsking = false;
  /** It was woken since it began to ask: that attempt may not have seen why. */
  #woken = false;
  #isDeaf = false;
  #timer?: NodeJS.Timeout;
  #backOff?: BackOff;

  constructor(
    private readonly key: string,
    /** Whom it is for; undefined: whoever is first in the queue of this process. */
    readonly waiter: Waiter | undefined,
    private readonly owner: ContenderOwner,
    private readonly duties: ContenderDuties,
  ) {}

  get isAsking(): boolean {
    return this.#isAsking;
  }

  /** @param holders how many in turn the lock is for; with a place in the queue, if it is not free */
  ask(ttlMs: number, holders?: number): void {
    const { backend, now, nextOwner, underWay } = this.duties;
    const { waitQueue } = backend;
    const wasWoken = this.#woken;
    this.#stopWaiting();
    this.#isAsking = true;
    this.#woken = false;
    const place = holders === undefined || !waitQueue ? undefined : { ...this.#takePlace(waitQueue) };
    const owner = place && waitQueue?.handsOver ? place.ticket : nextOwner();
    const request = { key: this.key, owner, ttlMs, place, holders };
    const attemptedAt = now();
    this.#askedOnceAt = place && this.#queued ? undefined : attemptedAt;
    underWay.begin();
    backend.acquire(request, (outcome) => {
      this.#isAsking = false;
      if (outcome.status === 'acquired' && this.#queued && !wasWoken) waitQueue?.checkListening(); // it was granted unheard
      if (outcome.status !== 'contended') this.#dropPlace(outcome.status === 'unavailable');
      else this.#noteQueued(outcome);
      if (outcome.status === 'contended' && outcome.isRepeated) this.#askedOnceAt = undefined;
      this.owner.onOutcome(this, request, outcome, attemptedAt);
      underWay.end();
    });
  }

  /** Waits after a refusal. */
  wait({ remainingMs, queued }: Extract<AcquireOutcome, { status: 'contended' }>, attemptMs: number): void {
    const { backend, listener } = this.duties;
    const { waitQueue } = backend;
    if (waitQueue && !waitQueue.isListening) waitQueue.listen(listener);
    const isListening = waitQueue?.isListening ?? false;
    // A release would pass its place over.
    if (waitQueue?.handsOver && this.#place?.isHeard && !isListening) {
      this.#renewPlace(waitQueue);
      this.owner.onTurn(this);
      return;
    }
    // Whoever asked without a place in the queue hears of nothing: it takes one at once.
    if (this.#woken || (!this.#place && isListening && remainingMs !== undefined)) {
      this.owner.onTurn(this);
      return;
    }
    // After a split vote chance alone must decide who is first.
    this.#isDeaf = remainingMs === undefined;
    const pauseMs =
      queued && isListening && remainingMs !== undefined
        ? Math.min(CHECK_MS, Math.max(0, remainingMs) + AFTER_EXPIRY_MS)
        : (this.#backOff ??= new BackOff()).next(remainingMs, attemptMs);
    this.#timer = setTimeout(() => this.owner.onTurn(this), pauseMs);
  }

  /** Its turn may have come, or the lock was handed over to its ticket. */
  wake(handOver?: HandOver): void {
    this.#woken = true;
    if (!this.#timer || this.#isDeaf) return;
    if (handOver === undefined || this.#askedOnceAt === undefined) this.owner.onTurn(this);
    else this.owner.onHandOver(this, handOver, this.#askedOnceAt);
  }

  /** It has got what it waited for. */
  won(): void {
    this.#stopWaiting();
    this.#dropPlace(false);
  }

  /** Nobody is left for whom it waits. */
  withdraw(): void {
    this.#stopWaiting();
    this.#dropPlace(true);
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #takePlace({ isListening }: WaitQueue): Place {
    if (!this.#place) {
      const { contenders, nextOwner } = this.duties;
      this.#place = { ticket: nextOwner(), isHeard: isListening };
      contenders.set(this.#place.ticket, this);
    }
    return this.#place;
  }

  #noteQueued({ queued, number }: Extract<AcquireOutcome, { status: 'contended' }>): void {
    this.#queued ||= queued;
    if (queued && this.#place) this.#place.number = number ?? this.#place.number ?? 0;
  }

  /** Nobody hears any more when its turn comes: in its old order it is granted the lock all the same. */
  #renewPlace(waitQueue: WaitQueue): void {
    const { number } = this.#place!;
    this.#dropPlace(true);
    this.#takePlace(waitQueue);
    this.#place!.number = number;
  }

  #dropPlace(leave: boolean): void {
    if (!this.#place) return;
    if (leave && this.#queued) this.duties.backend.waitQueue?.leave(this.key, this.#place);
    this.duties.contenders.delete(this.#place.ticket);
    this.#place = undefined;
    this.#queued = false;
  }
}
