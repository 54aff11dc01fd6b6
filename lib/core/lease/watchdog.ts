import type { LockLostReason } from '../../api/errors.js';
import { outsideOfCalls } from '../time/event-loop.js';
import { LinkedList } from '../time/linked-list.js';
import type { Lease } from './lease.js';

/** First try after this part of the ttl, so that two more fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
/**
 * By up to this part the first try is earlier, in each process by another: processes whose leases were extended at the same
 * moment, as after an outage, drift apart. Never later, so that a loss is noticed within a third of the ttl.
 */
const JITTER = 1 / 10;
/** First try for a lease of which `marginMs` takes a large part, as a part of the rest. */
const EXTEND_AFTER_AT_MOST = 1 / 2;
/** Next try after a failed one, as a part of the lease. */
const RETRY_AFTER = 1 / 10;
/** Leases that come due within this part of their ttl are extended along: few large batches instead of many small ones. */
const COALESCE = 1 / 15;
/** A timer this late, as a part of the lease, says that the process did not run. */
const STALLED_AFTER = 1 / 10;

/** How many leases are extended at once: very many would keep the process, and the other clients of a server, waiting. */
export const EXTENSIONS_AT_ONCE = 300;
/** After so many milliseconds the next ones are: meanwhile answers are read, and others have their time. */
export const PAUSE_MS = 3;
/** A lease that has been due for this part of it is extended without a pause. */
const HURRY_AFTER = 1 / 10;

/** How many queues, one for each ttl in use, may be empty for a while. */
const EMPTY_QUEUES = 8;

/** Hears from the watchdog which leases are due. */
export interface WatchdogListener {
  readonly now: () => number;
  /** A lease is to be extended, or its deadline has passed: it stays due until it is watched anew, or not at all. */
  onDue(lease: Lease): void;
}

/** Leases of one ttl in the order they come due. */
class Queue extends LinkedList<Lease> {
  /** When the last one comes due. */
  lastDueAt = -Infinity;

  constructor(readonly id: number) {
    super();
  }
}

/**
 * Keeps the time of all leases of a service with one timer: when each is to be extended, and when it ends. Leases of one ttl
 * mostly come due in the order they were watched or extended, so there is a queue for each ttl; those in trouble, or out of
 * order, are looked at one by one.
 */
export class Watchdog {
  readonly #listener: WatchdogListener;
  /** The same for all leases, so that those of one ttl come due in order. */
  readonly #extendAfter: number;
  /** By ttl; negative for leases that are not extended. */
  readonly #queues = new Map<number, Queue>();
  /** Leases with an extension in flight or failed, and those that come due before the last of their queue. */
  readonly #troubled = new LinkedList<Lease>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  /** @param random from 0 to 1, for the jitter */
  constructor(listener: WatchdogListener, random = Math.random()) {
    this.#listener = listener;
    this.#extendAfter = EXTEND_AFTER * (1 - JITTER * random);
  }

  /** How many leases it watches. */
  get size(): number {
    let { size } = this.#troubled;
    for (const queue of this.#queues.values()) size += queue.size;
    return size;
  }

  /** All leases that it watches. */
  get leases(): Lease[] {
    return [...this.#queues.values(), this.#troubled].flatMap((list) => list.filter(() => true));
  }

  /** Watches a lease that was granted or extended: it is due when it should be extended, or ends. */
  watch(lease: Lease): void {
    this.unwatch(lease);
    const extendAfterMs = Math.min(lease.ttlMs * this.#extendAfter, leaseMs(lease) * EXTEND_AFTER_AT_MOST);
    lease.dueAt = lease.kept ? lease.sentAt + extendAfterMs : lease.deadline;
    this.#wakeAt(lease.dueAt);
    const queue = this.#queueOf(lease);
    if (lease.dueAt < queue.lastDueAt - leewayMs(lease)) {
      this.#troubled.push(lease); // answered late
      return;
    }
    queue.lastDueAt = Math.max(queue.lastDueAt, lease.dueAt);
    queue.push(lease);
  }

  /** Watches a lease while an extension is in flight: it is due at its deadline. */
  watchExtending(lease: Lease): void {
    this.unwatch(lease);
    this.#troubled.push(lease);
    this.#wakeAt(lease.deadline);
  }

  /** Watches a lease whose extension failed: it is due when another should be tried, or at its deadline. */
  watchFailed(lease: Lease): void {
    this.unwatch(lease);
    this.#troubled.push(lease);
    lease.dueAt = lease.kept ? this.#listener.now() + leaseMs(lease) * RETRY_AFTER : lease.deadline;
    this.#wakeAt(Math.min(lease.dueAt, lease.deadline));
  }

  /** Synchronous: after it returns, the lease does not come due any more. Does nothing for one that is not watched. */
  unwatch(lease: Lease): void {
    const { list } = lease;
    list?.remove(lease);
    if (list instanceof Queue && list.size === 0 && this.#queues.size > EMPTY_QUEUES) this.#queues.delete(list.id);
  }

  /** Why a lease is over whose deadline has passed. */
  whyOver(lease: Lease): LockLostReason {
    if (!lease.kept) return 'expired';
    const overdueMs = this.#listener.now() - this.#timerDue;
    return overdueMs > leaseMs(lease) * STALLED_AFTER ? 'stalled' : 'unavailable';
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timerDue = Infinity;
  }

  /** The queue of a lease. Leases that are not extended come due at another time, and have queues of their own. */
  #queueOf({ kept, ttlMs }: Lease): Queue {
    const id = kept ? ttlMs : -ttlMs;
    let queue = this.#queues.get(id);
    if (!queue) this.#queues.set(id, (queue = new Queue(id)));
    else if (queue.size === 0) queue.lastDueAt = -Infinity;
    return queue;
  }

  #wakeAt(due: number): void {
    if (due >= this.#timerDue) return;
    clearTimeout(this.#timer);
    this.#timerDue = due;
    // Never early by a rounding: at the deadline the lease counts as ended.
    const delayMs = Math.max(1, Math.ceil(due - this.#listener.now()));
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#look(), delayMs)).unref();
  }

  #look(): void {
    const now = this.#listener.now();
    const over: Lease[] = [];
    const due: Lease[] = [];
    /** @returns false when it has to wait */
    const take = (lease: Lease): boolean => {
      if (lease.deadline <= now) over.push(lease);
      else if (due.length < EXTENSIONS_AT_ONCE || isInHurry(lease, now)) due.push(lease);
      else return false;
      return true;
    };
    for (const queue of this.#queues.values()) {
      let lease = queue.first;
      while (lease && lease.dueAt <= now + leewayMs(lease) && take(lease)) lease = lease.next;
    }
    for (let lease = this.#troubled.first; lease; lease = lease.next) {
      if (lease.deadline <= now || (lease.dueAt <= now && !lease.isExtending)) take(lease);
    }
    for (const lease of [...over, ...due]) this.#listener.onDue(lease);
    this.#timerDue = Infinity;
    this.#wakeAt(this.#nextDue(now + PAUSE_MS));
  }

  /** @param resumeAt when leases are extended again: before that, only deadlines count */
  #nextDue(resumeAt: number): number {
    let next = Infinity;
    for (const { first } of this.#queues.values()) {
      if (first) next = Math.min(next, first.deadline, Math.max(first.dueAt, resumeAt)); // it comes due first
    }
    for (let lease = this.#troubled.first; lease; lease = lease.next) {
      next = Math.min(next, lease.deadline, lease.isExtending ? Infinity : Math.max(lease.dueAt, resumeAt));
    }
    return next;
  }
}

/** Whether a lease has been due for so long that its extension must not wait any more. */
function isInHurry(lease: Lease, now: number): boolean {
  return now - lease.dueAt > leaseMs(lease) * HURRY_AFTER;
}

/** How much earlier than it comes due a lease may be looked at; one that is not extended then ends, so not at all. */
function leewayMs(lease: Lease): number {
  return lease.kept ? leaseMs(lease) * COALESCE : 0;
}

/** From when its command was sent to its deadline. */
function leaseMs({ sentAt, deadline }: Lease): number {
  return deadline - sentAt;
}
