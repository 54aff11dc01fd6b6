import type { ExtendOutcome } from '../backends/lock-backend.js';
import type { LockLostReason, NodeError } from '../errors.js';
import type { Lease } from './lease.js';

/** First try after this part of the ttl, so that two more fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 10;
/** What is due within this part of the ttl is extended along: few large batches instead of many small ones. */
const COALESCE = 1 / 15;
/** A timer this late, as a part of the ttl, says that the process did not run. */
const STALLED_AFTER = 1 / 10;

/** What the watchdog needs of the world, and tells it. */
export interface WatchdogDuties {
  now(): number;
  /** Asks the backend, which batches what is asked for at once. Never rejects. */
  extend(lease: Lease): Promise<ExtendOutcome>;
  onLost(lease: Lease, reason: LockLostReason): void;
  onFault(lease: Lease, causes: NodeError[]): void;
}

/**
 * Keeps all leases of a service with one timer. Leases of one ttl come due in the order they were watched or extended,
 * so a set for each ttl is a queue from which any lease can be removed at once; those in trouble are looked at one by one.
 */
export class Watchdog {
  readonly #duties: WatchdogDuties;
  /** Leases in the order they come due, by ttl; negative for those that are not extended. */
  readonly #queues = new Map<number, Set<Lease>>();
  /** Leases with an extension under way or failed. */
  readonly #troubled = new Set<Lease>();
  readonly #underWay = new Map<Lease, Promise<ExtendOutcome>>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(duties: WatchdogDuties) {
    this.#duties = duties;
  }

  /** How many leases it watches. */
  get size(): number {
    let size = this.#troubled.size;
    for (const queue of this.#queues.values()) size += queue.size;
    return size;
  }

  watch(lease: Lease): void {
    lease.dueAt = lease.kept ? lease.sentAt + lease.ttlMs * EXTEND_AFTER : lease.deadline;
    this.#wakeAt(lease.dueAt);
    if (this.#duties.now() - lease.sentAt > lease.ttlMs * COALESCE) {
      this.#troubled.add(lease); // answered late: it comes due before those that stand in the queue
      return;
    }
    const id = queueOf(lease);
    let queue = this.#queues.get(id);
    if (!queue) this.#queues.set(id, (queue = new Set()));
    queue.add(lease);
  }

  /** Synchronous: after it returns, no extension of the lease is sent any more. */
  unwatch(lease: Lease): void {
    if (this.#troubled.delete(lease)) return;
    const id = queueOf(lease);
    const queue = this.#queues.get(id);
    if (queue?.delete(lease) && queue.size === 0) this.#queues.delete(id);
  }

  /** Extends now, on request of the holder; a different ttl is kept to from then on. */
  async extend(lease: Lease, ttlMs: number): Promise<ExtendOutcome> {
    while (this.#underWay.has(lease)) await this.#underWay.get(lease); // one at a time, so that the last answer is that of the last command
    if (lease.state !== 'held') return { status: 'lost', reason: 'expired' };
    this.unwatch(lease);
    lease.extending(this.#duties.now(), ttlMs);
    this.#troubled.add(lease);
    this.#wakeAt(lease.deadline);
    return this.#extend(lease);
  }

  /** The lease's deadline has passed, whoever found out. */
  expire(lease: Lease): void {
    const overdueMs = this.#duties.now() - this.#timerDue;
    if (!lease.kept) this.#lose(lease, 'expired');
    else this.#lose(lease, overdueMs > lease.ttlMs * STALLED_AFTER ? 'stalled' : 'unavailable');
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timerDue = Infinity;
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
      for (const lease of queue) {
        if (lease.dueAt > now + (lease.kept ? lease.ttlMs * COALESCE : 0)) break;
        due.push(lease);
      }
    }
    for (const lease of this.#troubled) {
      if (lease.deadline <= now || (lease.dueAt <= now && !this.#underWay.has(lease))) due.push(lease);
    }
    for (const lease of due) {
      if (lease.state !== 'held') continue; // asking ends what is past its deadline
      this.unwatch(lease);
      this.#troubled.add(lease);
      void this.#extend(lease);
    }
    this.#timerDue = Infinity;
    this.#wakeAt(this.#nextDue());
  }

  #nextDue(): number {
    let next = Infinity;
    for (const queue of this.#queues.values()) {
      for (const lease of queue) {
        next = Math.min(next, lease.dueAt);
        break; // the first of a queue comes due first
      }
    }
    for (const lease of this.#troubled) {
      next = Math.min(next, lease.deadline, this.#underWay.has(lease) ? Infinity : lease.dueAt);
    }
    return next;
  }

  #extend(lease: Lease): Promise<ExtendOutcome> {
    const underWay = this.#duties.extend(lease).then((outcome) => {
      this.#underWay.delete(lease);
      // Released or lost meanwhile: its answer is of no interest any more.
      if (this.#troubled.has(lease)) this.#conclude(lease, outcome);
      return outcome;
    });
    this.#underWay.set(lease, underWay);
    return underWay;
  }

  #conclude(lease: Lease, outcome: ExtendOutcome): void {
    switch (outcome.status) {
      case 'extended':
        this.#troubled.delete(lease);
        lease.extended(outcome.sentAt);
        this.watch(lease);
        break;
      case 'lost':
        this.#lose(lease, outcome.reason);
        break;
      case 'unavailable':
        lease.fault = outcome.causes[0];
        lease.dueAt = lease.kept ? this.#duties.now() + lease.ttlMs * RETRY_AFTER : lease.deadline;
        this.#wakeAt(Math.min(lease.dueAt, lease.deadline));
        this.#duties.onFault(lease, outcome.causes);
        break;
    }
  }
}

/** Those that are not extended come due at another time, so they stand in a queue of their own. */
function queueOf({ kept, ttlMs }: Lease): number {
  return kept ? ttlMs : -ttlMs;
}
