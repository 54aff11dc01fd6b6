import type { ExtendOutcome } from '../backend/lock-backend.js';
import type { LockLostReason, NodeError } from '../../api/errors.js';
import { setImmediate } from '../time/event-loop.js';
import { LinkedList } from '../time/linked-list.js';
import type { Lease } from './lease.js';

/** First try after this part of the ttl, so that two more fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
/** The same for a lease of which `guardMs` takes a large part, as a part of what it leaves. */
const EXTEND_AFTER_AT_MOST = 1 / 2;
/** Next try after a failed one, as a part of the lease. */
const RETRY_AFTER = 1 / 10;
/** What is due within this part of the lease is extended along: few large batches instead of many small ones. */
const COALESCE = 1 / 15;
/** A timer this late, as a part of the lease, says that the process did not run. */
const STALLED_AFTER = 1 / 10;

/** So many queues, of the ttls in use, may be empty for a while. */
const EMPTY_QUEUES = 8;

/** What the watchdog needs of the world, and tells it. */
export interface WatchdogDuties {
  now(): number;
  /** Asks the backend, which batches what is asked for at once, and tells the outcome after this has returned. */
  extend(lease: Lease, told: (outcome: ExtendOutcome) => void): void;
  onLost(lease: Lease, reason: LockLostReason): void;
  onFault(lease: Lease, causes: NodeError[]): void;
}

/** Leases in the order they come due. */
class Queue extends LinkedList<Lease> {
  /** When the last one comes due. */
  lastDueAt = -Infinity;
}

/**
 * Keeps all leases of a service with one timer. Leases of one ttl mostly come due in the order they were watched or
 * extended, so there is a queue for each ttl; those in trouble, or out of order, are looked at one by one.
 */
export class Watchdog {
  readonly #duties: WatchdogDuties;
  /** By ttl; negative for those that are not extended. */
  readonly #queues = new Map<number, Queue>();
  /** Leases with an extension under way or failed, and those that come due before others that stand in their queue. */
  readonly #troubled = new LinkedList<Lease>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(duties: WatchdogDuties) {
    this.#duties = duties;
  }

  /** How many leases it watches. */
  get size(): number {
    let { size } = this.#troubled;
    for (const queue of this.#queues.values()) size += queue.size;
    return size;
  }

  /** What it watches. */
  get leases(): Lease[] {
    return [...this.#queues.values(), this.#troubled].flatMap((list) => list.filter(() => true));
  }

  watch(lease: Lease): void {
    const extendAfterMs = Math.min(lease.ttlMs * EXTEND_AFTER, leaseMs(lease) * EXTEND_AFTER_AT_MOST);
    lease.dueAt = lease.kept ? lease.sentAt + extendAfterMs : lease.deadline;
    this.#wakeAt(lease.dueAt);
    const id = queueOf(lease);
    let queue = this.#queues.get(id);
    if (!queue) this.#queues.set(id, (queue = new Queue()));
    else if (queue.size === 0) queue.lastDueAt = -Infinity;
    if (lease.dueAt < queue.lastDueAt - leewayMs(lease)) {
      this.#troubled.push(lease); // answered late
      return;
    }
    queue.lastDueAt = Math.max(queue.lastDueAt, lease.dueAt);
    queue.push(lease);
  }

  /** Synchronous: after it returns, no extension of the lease is sent any more. */
  unwatch(lease: Lease): void {
    const { list } = lease;
    list?.remove(lease);
    if (list instanceof Queue && list.size === 0 && this.#queues.size > EMPTY_QUEUES)
      this.#queues.delete(queueOf(lease));
  }

  /** Extends now, on request of the holder; a different ttl is kept to from then on. */
  async extend(lease: Lease, ttlMs: number): Promise<ExtendOutcome> {
    while (lease.isExtending) await lease.answered(); // one at a time, so that the last answer is that of the last command
    if (lease.state !== 'held') return { status: 'lost', reason: 'expired' };
    return new Promise((resolve) => this.#extendTo(lease, ttlMs, resolve));
  }

  /** Watches a lease that was granted for a short time, and extends it at once. */
  confirm(lease: Lease, ttlMs: number): void {
    lease.provisionalTtlMs = lease.ttlMs;
    this.#extendTo(lease, ttlMs); // whether it is over by now is seen later: whoever began to keep it must know it first
  }

  /** The lease's deadline has passed, whoever found out. */
  expire(lease: Lease): void {
    this.#lose(lease, this.#whyOver(lease));
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timerDue = Infinity;
  }

  #extendTo(lease: Lease, ttlMs: number, told?: (outcome: ExtendOutcome) => void): void {
    this.unwatch(lease);
    lease.extending(this.#duties.now(), ttlMs);
    this.#troubled.push(lease);
    this.#wakeAt(lease.deadline);
    this.#extend(lease, told);
  }

  #whyOver(lease: Lease): LockLostReason {
    if (!lease.kept) return 'expired';
    const overdueMs = this.#duties.now() - this.#timerDue;
    return overdueMs > leaseMs(lease) * STALLED_AFTER ? 'stalled' : 'unavailable';
  }

  /** After a pause of this process timers come first: an extension that was answered meanwhile counts. */
  #expireUnlessAnswered(lease: Lease): void {
    const reason = this.#whyOver(lease);
    setImmediate(() => {
      if (lease.list === this.#troubled && lease.deadline <= this.#duties.now()) this.#lose(lease, reason);
    });
  }

  #lose(lease: Lease, reason: LockLostReason): void {
    this.unwatch(lease);
    this.#duties.onLost(lease, reason);
  }

  #wakeAt(due: number): void {
    if (due >= this.#timerDue) return;
    clearTimeout(this.#timer);
    this.#timerDue = due;
    // Never early by a rounding: at the deadline the lease counts as ended.
    const delayMs = Math.max(1, Math.ceil(due - this.#duties.now()));
    this.#timer = setTimeout(() => this.#look(), delayMs).unref();
  }

  #look(): void {
    const now = this.#duties.now();
    const due: Lease[] = [];
    for (const queue of this.#queues.values()) {
      for (let lease = queue.first; lease && lease.dueAt <= now + leewayMs(lease); lease = lease.next) due.push(lease);
    }
    for (let lease = this.#troubled.first; lease; lease = lease.next) {
      if (lease.deadline <= now || (lease.dueAt <= now && !lease.isExtending)) due.push(lease);
    }
    for (const lease of due) {
      if (lease.state === 'unknown') {
        this.#expireUnlessAnswered(lease);
        continue;
      }
      if (lease.state !== 'held') continue; // asking ends what is past its deadline
      this.unwatch(lease);
      this.#troubled.push(lease);
      this.#extend(lease);
    }
    this.#timerDue = Infinity;
    this.#wakeAt(this.#nextDue());
  }

  #nextDue(): number {
    let next = Infinity;
    for (const { first } of this.#queues.values()) if (first) next = Math.min(next, first.dueAt); // it comes due first
    for (let lease = this.#troubled.first; lease; lease = lease.next) {
      next = Math.min(next, lease.deadline, lease.isExtending ? Infinity : lease.dueAt);
    }
    return next;
  }

  #extend(lease: Lease, told?: (outcome: ExtendOutcome) => void): void {
    lease.isExtending = true;
    this.#duties.extend(lease, (outcome) => {
      lease.endExtending();
      // Released or lost meanwhile: its answer is of no interest any more.
      if (lease.list === this.#troubled) this.#conclude(lease, outcome);
      told?.(outcome);
    });
  }

  #conclude(lease: Lease, outcome: ExtendOutcome): void {
    switch (outcome.status) {
      case 'extended':
        this.unwatch(lease);
        lease.extended(outcome.sentAt);
        this.watch(lease);
        break;
      case 'lost':
        this.#lose(lease, outcome.reason);
        break;
      case 'unavailable':
        lease.fault = outcome.causes[0];
        lease.dueAt = lease.kept ? this.#duties.now() + leaseMs(lease) * RETRY_AFTER : lease.deadline;
        this.#wakeAt(Math.min(lease.dueAt, lease.deadline));
        this.#duties.onFault(lease, outcome.causes);
        break;
    }
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

/** Those that are not extended come due at another time, so they stand in a queue of their own. */
function queueOf({ kept, ttlMs }: Lease): number {
  return kept ? ttlMs : -ttlMs;
}
