import type { LockLostReason } from '../../api/errors.js';
import { clearImmediate, setImmediate } from '../time/event-loop.js';
import { LinkedList } from '../time/linked-list.js';
import type { Lease } from './lease.js';

/** First try after this part of the ttl, so that two more fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
/** First try for a lease of which `marginMs` takes a large part, as a part of the rest. */
const EXTEND_AFTER_AT_MOST = 1 / 2;
/** Next try after a failed one, as a part of the lease. */
const RETRY_AFTER = 1 / 10;
/** Leases that come due within this part of their ttl are extended along: few large batches instead of many small ones. */
const COALESCE = 1 / 15;
/** A timer, or an extension, this late, as a part of the lease, says that the process did not run, or was too busy. */
const STALLED_AFTER = 1 / 10;

/**
 * How many leases are extended in one turn of the event loop: five full commands to Redis. Many more at once would keep the
 * process from everything else, and the server from its other clients.
 */
export const EXTENSIONS_A_TURN = 500;

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
  /** By ttl; negative for leases that are not extended. */
  readonly #queues = new Map<number, Queue>();
  /** Leases with an extension in flight or failed, and those that come due before the last of their queue. */
  readonly #troubled = new LinkedList<Lease>();
  /** Leases that were among the troubled and have come due: they wait for their turn, as others do in their queues. */
  readonly #dueAgain = new LinkedList<Lease>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;
  /** When it last looked which leases are due: those that were are extended in this turn of the event loop, and the next ones. */
  #lookedAt = -Infinity;
  #nextTurn?: NodeJS.Immediate;

  constructor(listener: WatchdogListener) {
    this.#listener = listener;
  }

  /** How many leases it watches. */
  get size(): number {
    let size = this.#troubled.size + this.#dueAgain.size;
    for (const queue of this.#queues.values()) size += queue.size;
    return size;
  }

  /** All leases that it watches. */
  get leases(): Lease[] {
    return [...this.#queues.values(), this.#troubled, this.#dueAgain].flatMap((list) => list.filter(() => true));
  }

  /** Watches a lease that was granted or extended: it is due when it should be extended, or ends. */
  watch(lease: Lease): void {
    this.unwatch(lease);
    const extendAfterMs = Math.min(lease.ttlMs * EXTEND_AFTER, leaseMs(lease) * EXTEND_AFTER_AT_MOST);
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
    const meantToActAt = this.#awaitsTurn(lease) ? lease.dueAt : this.#timerDue;
    const overdueMs = this.#listener.now() - meantToActAt;
    return overdueMs > leaseMs(lease) * STALLED_AFTER ? 'stalled' : 'unavailable';
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timerDue = Infinity;
    clearImmediate(this.#nextTurn);
    this.#nextTurn = undefined;
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
    this.#timer = setTimeout(() => this.#look(), delayMs).unref();
  }

  #look(): void {
    const now = (this.#lookedAt = this.#listener.now());
    const over: Lease[] = [];
    for (const queue of this.#queues.values()) {
      for (let lease = queue.first; lease && lease.deadline <= now + leewayMs(lease); lease = lease.next) {
        if (lease.deadline <= now) over.push(lease);
      }
    }
    for (let lease = this.#dueAgain.first; lease; lease = lease.next) if (lease.deadline <= now) over.push(lease);
    for (let lease = this.#troubled.first, next; lease; lease = next) {
      ({ next } = lease);
      if (lease.deadline <= now) over.push(lease);
      else if (lease.dueAt <= now && !lease.isExtending) {
        this.#troubled.remove(lease);
        this.#dueAgain.push(lease);
      }
    }
    for (const lease of over) this.#listener.onDue(lease); // all at once: an end waits for no turn
    if (!this.#nextTurn) this.#extendSome();
    this.#sleep();
  }

  /**
   * Extends leases that were due at the last look, as many as one turn may; the next turn goes on. A queue whose first lease
   * ends sooner goes first, so that a short lease does not wait behind very many long ones.
   */
  #extendSome(): void {
    let left = EXTENSIONS_A_TURN;
    const lists = [this.#dueAgain, ...this.#queues.values()].filter(({ first }) => first && this.#awaitsTurn(first));
    if (lists.length > 1) lists.sort((a, b) => a.first!.deadline - b.first!.deadline);
    for (const list of lists) {
      for (let lease = list.first; lease && this.#awaitsTurn(lease); lease = list.first) {
        if (left-- === 0) {
          this.#nextTurn = setImmediate(() => {
            this.#nextTurn = undefined;
            this.#extendSome();
            if (!this.#nextTurn) this.#sleep(); // until what comes due behind those
          });
          return;
        }
        this.#listener.onDue(lease);
      }
    }
  }

  /** Whether a lease was due at the last look and is not extended yet. */
  #awaitsTurn(lease: Lease): boolean {
    return lease.kept && lease.list !== this.#troubled && lease.dueAt <= this.#lookedAt + leewayMs(lease);
  }

  #sleep(): void {
    this.#timerDue = Infinity;
    this.#wakeAt(this.#nextDue());
  }

  #nextDue(): number {
    let next = Infinity;
    for (const { first } of this.#queues.values()) {
      if (first) next = Math.min(next, this.#awaitsTurn(first) ? first.deadline : first.dueAt); // it comes due first
    }
    for (let lease = this.#dueAgain.first; lease; lease = lease.next) next = Math.min(next, lease.deadline);
    for (let lease = this.#troubled.first; lease; lease = lease.next) {
      next = Math.min(next, lease.deadline, lease.isExtending ? Infinity : lease.dueAt);
    }
    return next;
  }
}

/** How much earlier than it comes due a lease may be looked at; one that is not extended then ends, so not at all. */
function leewayMs(lease: Lease): number {
  return lease.kept ? leaseMs(lease) * COALESCE : 0;
}

/** From when its command was sent to its deadline. */
function leaseMs({ sentAt, deadline }: Lease): number {
  return deadline - sentAt;
}
