import type { HandOver, LockBackend, ReleaseOutcome } from '../backend/lock-backend.js';
import type { Lease } from '../lease/lease.js';
import type { LeaseListener, Leases } from '../lease/leases.js';
import type { InFlight } from '../time/in-flight.js';
import { Pacer } from '../time/pacer.js';
import { CHECK_MS, type Bid } from './bid.js';
import { ContestedKeys } from './contested-keys.js';
import { Line, type LineLimits, type LineParts } from './line.js';
import type { Order } from './order.js';
import type { Closing, Waiter } from './waiter.js';

/** What comes due within this part of its period is checked along. */
const COALESCE = 1 / 10;
/** How many bids are checked at once. */
const CHECKS_AT_ONCE = 500;

/** The lines of all keys that calls of this process want or hold. */
export class Lines implements LineParts, LeaseListener {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly order: Order;
  readonly limits: LineLimits;
  readonly leases: Pick<Leases, 'add' | 'pass' | 'check'>;
  readonly inFlight: InFlight;
  /** @param key of a call that waits */
  readonly warn: (key: string, message: string) => void;
  readonly nextOwner: () => string;
  readonly byTicket = new Map<string, Bid>();
  readonly checks: Pacer<Bid>;
  /** Made when a call had to wait: an uncontended call passes by. */
  #contested?: ContestedKeys;
  readonly #lines = new Map<string, Line>();

  constructor(
    parts: Pick<Lines, 'backend' | 'now' | 'order' | 'limits' | 'leases' | 'inFlight' | 'warn' | 'nextOwner'>,
  ) {
    this.backend = parts.backend;
    this.now = parts.now;
    this.order = parts.order;
    this.limits = parts.limits;
    this.leases = parts.leases;
    this.inFlight = parts.inFlight;
    this.warn = parts.warn;
    this.nextOwner = parts.nextOwner;
    this.checks = new Pacer<Bid>({
      now: parts.now,
      atOnce: CHECKS_AT_ONCE,
      leewayMs: () => CHECK_MS * COALESCE,
      isUrgent: () => false,
      onDue: (bid) => this.onDue(bid),
    });
  }

  /** How much it keeps: nothing unless keys are held or waited for in this process. */
  get size(): number {
    return this.#lines.size + this.byTicket.size;
  }

  /** The lease of the key, if this process holds it. */
  leaseOf(key: string): Lease | undefined {
    return this.#lines.get(key)?.lease;
  }

  /** How many calls of this process wait for the key. */
  waiting(key: string): number {
    return this.#lines.get(key)?.size ?? 0;
  }

  /** Calls back for each call that waits. */
  eachWaiter(call: (waiter: Waiter) => void): void {
    for (const line of this.#lines.values()) line.eachWaiter(call);
  }

  wasContested(key: string): boolean {
    return this.#contested !== undefined && this.#contested.has(key);
  }

  noteContested(key: string): void {
    (this.#contested ??= new ContestedKeys(this.now)).note(key);
  }

  /** The waiter is granted a lease, or refused, sooner or later. */
  join(waiter: Waiter): void {
    const { key } = waiter;
    let line = this.#lines.get(key);
    if (!line) this.#lines.set(key, (line = new Line(key, this)));
    try {
      line.join(waiter);
    } catch (bug) {
      if (!waiter.isSettled) waiter.refuse(bug);
    }
  }

  /**
   * Passes the lock on to the next call of this process, or gives it back to the store.
   * @param done called with the outcome of the release
   * @returns whether it was passed on
   */
  giveBack(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    return this.#lines.get(lease.key)!.giveBack(lease, done);
  }

  /** The lease was lost. */
  onLost(lease: Lease): void {
    this.#lines.get(lease.key)?.onLost(lease);
  }

  /** The closing has come to its next phase: refuses the calls that may not wait any more. */
  refuseWaiting(closing: Closing): void {
    for (const line of [...this.#lines.values()]) line.refuseWaiting(closing);
  }

  onTurn(ticket?: string, handOver?: HandOver): void {
    if (ticket !== undefined) this.#wake(ticket, handOver);
    else this.checks.hurry([...this.byTicket.values()].filter((bid) => bid.wake()));
  }

  onListening(key: string): void {
    this.#lines.get(key)?.onListening();
  }

  onDue(bid: Bid): void {
    this.checks.remove(bid);
    this.#lines.get(bid.key)!.onDue();
  }

  onTaken(key: string, owner: string): void {
    this.#lines.get(key)?.onTaken(owner);
  }

  onWarning(message: string): void {
    const keys = [...this.#lines.keys()];
    this.warn(keys.find((key) => this.waiting(key) > 0) ?? keys[0] ?? '', message);
  }

  forget(key: string): void {
    this.#lines.delete(key);
  }

  #wake(ticket: string, handOver?: HandOver): void {
    const bid = this.byTicket.get(ticket);
    if (bid?.wake()) this.#lines.get(bid.key)!.onTurn(handOver);
  }
}
