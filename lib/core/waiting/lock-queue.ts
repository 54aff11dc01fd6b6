import type { AcquireOutcome, AcquireRequest, Grant, HandOver, ReleaseOutcome } from '../backend/lock-backend.js';
import { LockUnavailableError, type NodeError } from '../../api/errors.js';
import type { Lease } from '../lease/lease.js';
import type { Leases } from '../lease/leases.js';
import { validityMs } from '../time/validity.js';
import { Contender, type ContenderDuties, type ContenderOwner } from './contender.js';
import { closed, type Interruption } from './interruption.js';
import { contended, inVain, tooLate, type Known, type Sighting } from './refusals.js';
import { WaiterList } from './waiter-list.js';
import type { Waiter, WaiterQueue } from './waiter.js';

/** How the calls of one process wait. */
export interface QueueLimits {
  guardMs: number;
  fair: boolean;
  maxWaiters: number;
  cohortPasses: number;
  cohortMs: number;
}

/** What the queues of a service need of the world. */
export interface QueueDuties extends ContenderDuties {
  limits: QueueLimits;
  leases: Pick<Leases, 'add' | 'check' | 'lose'>;
  /** Nobody wants or holds the lock in this process any more. */
  onEmpty: (key: string) => void;
}

/** What one grant is good for: some holders of this process in turn. */
interface Cohort {
  nextToken: number;
  lastToken: number;
  endsAt: number;
}

/** A lock that was handed over is begun with if it stands for this part of its time longer: enough to be extended. */
const BEGIN_WITH = 0.45;
/** A lock is passed on only in this first part of its lease: its next holder must not begin with a lease that ends. */
const PASSED_WITHIN = 1 / 3;

/**
 * All calls of this process that want one lock, in the order of their arrival. They have one contender between them, and when
 * it wins, the lock is passed on among them for a while: lock cohorting (Dice, Marathe, Shavit, PPoPP 2012). In fair
 * mode each has a contender of its own.
 */
export class LockQueue implements ContenderOwner, WaiterQueue {
  readonly #waiters = new WaiterList();
  #contender?: Contender;
  /** In fair mode, instead. */
  readonly #contenders?: Map<Waiter, Contender>;
  /** Held in this process. */
  #lease?: Lease;
  #cohort?: Cohort;
  #sighting?: Sighting;

  constructor(
    private readonly key: string,
    private readonly duties: QueueDuties,
  ) {
    if (duties.limits.fair && duties.backend.waitQueue?.handsOver) this.#contenders = new Map();
  }

  /** What this process holds. */
  get lease(): Lease | undefined {
    return this.#lease;
  }

  /** How many calls wait. */
  get size(): number {
    return this.#waiters.size;
  }

  join(waiter: Waiter): void {
    const { backend, limits } = this.duties;
    const isTaken = this.#lease !== undefined || this.#sighting !== undefined;
    if (isTaken && waiter.triesOnce) {
      waiter.refuse(contended(waiter, this.#known));
      return;
    }
    // Who asks for a lock that may be free does not wait yet.
    if (this.#waiters.size >= limits.maxWaiters + (isTaken ? 0 : 1)) {
      waiter.refuse(contended(waiter, this.#known, limits.maxWaiters));
      return;
    }
    const asks = this.#contenders !== undefined || (!this.#lease && !this.#contender);
    if (waiter.interruption.happened && (isTaken || !asks)) {
      waiter.refuse(closed(this.key));
      return;
    }
    this.#waiters.push(waiter);
    const { signal, waitMs, ttlMs } = waiter.terms;
    // An attempt ends by itself: who asks at once, and has the time for it, needs no timer.
    if (!asks || signal || waitMs <= backend.attemptTimeoutMs(ttlMs)) waiter.mind(this);
    if (asks && !waiter.isSettled) this.#begin(waiter);
  }

  /** Passes the lock on, or gives it back: its holder is done. @returns whether it was passed on */
  giveBack(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    this.#lease = undefined;
    const next = this.#waiters.first;
    if (next && this.#canPassOn(lease, next)) {
      const { grant, ttlMs, sentAt } = lease;
      this.#grant(next, grant, this.#cohort!.nextToken++, ttlMs, sentAt);
      return true;
    }
    this.duties.backend.release(lease.grant, done);
    this.#noteTaken();
    this.#goOn();
    return false;
  }

  /** The lease was lost. */
  lost(lease: Lease): void {
    if (this.#lease !== lease) return;
    this.#lease = undefined;
    this.#noteTaken();
    this.#goOn();
  }

  /** The lock was taken by force from this owner, or so it is said: Redis is asked, and nothing passed on until it was. */
  suspect(owner: string): void {
    if (this.#lease?.grant.owner !== owner) return;
    this.#cohort = undefined;
    this.duties.leases.check(this.#lease);
  }

  giveUp(waiter: Waiter, reason: unknown = inVain(waiter, this.#known)): void {
    this.#refuse(waiter, reason);
    this.#goOn();
  }

  /** Calls whose waiting it ends are refused; one that asks for a lock that may be free does not wait yet. */
  interrupt(interruption: Interruption): void {
    const mayBeFree = this.#lease === undefined && this.#sighting === undefined;
    const asks = (waiter: Waiter) => mayBeFree && (this.#contenders !== undefined || waiter === this.#waiters.first);
    for (const waiter of this.#waiters.filter((each) => each.interruption === interruption && !asks(each)))
      this.giveUp(waiter, closed(this.key));
  }

  onTurn(contender: Contender): void {
    const { triesOnce, terms } = this.#waiterOf(contender)!;
    const { limits, now } = this.duties;
    if (this.#sighting) this.#sighting.askedAt ??= now();
    // An attempt that will probably win, or that nobody waits behind, is spared the words for a place in the queue.
    const waits = this.#contenders ? !triesOnce : this.#sighting !== undefined || this.#waiters.size > 1;
    const passes = this.#contenders ? 0 : Math.min(limits.cohortPasses, this.#waiters.size - 1);
    contender.ask(terms.ttlMs, waits ? 1 + passes : undefined);
  }

  /**
   * Whoever it is for begins at once, and the lease is extended meanwhile: docs/adr/0018-begin-with-the-grant.md. Otherwise
   * it is confirmed first: for several holders in turn, for one whose lease is not extended, and when too little is left.
   */
  onHandOver(contender: Contender, handOver: HandOver, sentAt: number): void {
    const waiter = this.#waiterOf(contender)!;
    const { limits, now } = this.duties;
    const servesOne = this.#contenders !== undefined || this.#waiters.size === 1;
    const { ttlMs, watchdog } = waiter.terms;
    const grantLeftMs = sentAt + validityMs(handOver.ttlMs, limits.guardMs) - now();
    const leftMs = Math.min(grantLeftMs, validityMs(ttlMs, limits.guardMs));
    if (!servesOne || !watchdog || leftMs < handOver.ttlMs * BEGIN_WITH) {
      this.onTurn(contender);
      return;
    }
    contender.won();
    this.#drop(contender);
    this.#cohort = undefined;
    const grant = handOver.grantOf(this.key);
    this.#grant(waiter, grant, grant.fencingToken, handOver.ttlMs, sentAt, ttlMs);
    this.#refuseTriers();
  }

  onOutcome(contender: Contender, request: AcquireRequest, outcome: AcquireOutcome, attemptedAt: number): void {
    switch (outcome.status) {
      case 'acquired':
        this.#acquired(contender, request, outcome);
        break;
      case 'contended':
        this.#contended(contender, outcome, attemptedAt);
        break;
      case 'unavailable':
        this.#unavailable(contender, outcome.causes, attemptedAt);
        break;
    }
    this.#goOn();
  }

  #acquired(
    contender: Contender,
    request: AcquireRequest,
    outcome: Extract<AcquireOutcome, { status: 'acquired' }>,
  ): void {
    const { grant, sentAt } = outcome;
    const { backend, limits, now } = this.duties;
    const waiter = this.#waiterOf(contender);
    const answeredAt = now();
    const isOfUse = answeredAt < sentAt + validityMs(request.ttlMs, limits.guardMs);
    this.#drop(contender);
    if (isOfUse && waiter?.terms.ttlMs === request.ttlMs) {
      this.#cohort = cohortOf(grant, answeredAt + limits.cohortMs);
      this.#grant(waiter, grant, grant.fencingToken, request.ttlMs, sentAt);
      this.#refuseTriers();
      return;
    }
    // Whom it was for has given up, and the next one wants another ttl; or nothing is left of the lease: this process
    // was paused, or Redis is slower than the ttl.
    backend.release(grant, () => {});
    if (!isOfUse && waiter?.remainingMs === 0)
      this.#refuse(waiter, tooLate(this.key, request.ttlMs, answeredAt - sentAt));
    else waiter?.mind(this);
    if (this.#contenders && waiter && !waiter.isSettled) this.#begin(waiter);
  }

  #contended(
    contender: Contender,
    refusal: Extract<AcquireOutcome, { status: 'contended' }>,
    attemptedAt: number,
  ): void {
    const { owner, remainingMs } = refusal;
    const answeredAt = this.duties.now();
    this.#sighting = {
      owner,
      endsAt: remainingMs === undefined ? undefined : answeredAt + remainingMs,
    };
    this.#refuseTriers();
    const waiter = this.#waiterOf(contender);
    if (waiter?.interruption.happened) this.#refuse(waiter, closed(this.key));
    else waiter?.mind(this);
    if (this.#waiterOf(contender)) contender.wait(refusal, answeredAt - attemptedAt);
    else this.#end(contender);
  }

  /** Who waited for all of a failed attempt need not make the same one again: else a queue would fail one by one. */
  #unavailable(contender: Contender, causes: readonly NodeError[], attemptedAt: number): void {
    const failed = (waiter: Waiter) =>
      waiter.startedAt <= attemptedAt && (!contender.waiter || waiter === contender.waiter);
    for (const waiter of this.#waiters.filter(failed)) {
      this.#refuse(waiter, LockUnavailableError.from('acquired', this.key, causes));
    }
    if (this.#waiterOf(contender)) this.onTurn(contender);
    else this.#end(contender);
  }

  #grant(
    waiter: Waiter,
    grant: Grant,
    fencingToken: number | undefined,
    ttlMs: number,
    sentAt: number,
    extendTo?: number,
  ): void {
    this.#waiters.remove(waiter);
    this.#sighting = undefined;
    const earlier = this.#lease;
    this.#lease = undefined;
    if (earlier) this.duties.leases.lose(earlier, 'stolen'); // in fair mode: it was taken from there before it was granted here
    this.#lease = this.duties.leases.add(grant, fencingToken, ttlMs, sentAt, waiter.terms.watchdog, extendTo);
    waiter.grant(this.#lease);
  }

  #refuse(waiter: Waiter, reason: unknown): void {
    if (!waiter.list) return; // a lock that was found lost meanwhile made it give up; or it is being granted
    this.#waiters.remove(waiter);
    waiter.refuse(reason);
    const contender = this.#contenders ? this.#contenders.get(waiter) : this.#contender;
    if (contender && !contender.isAsking && !this.#waiterOf(contender)) this.#end(contender);
  }

  /** Those who try once have found others before them. */
  #refuseTriers(): void {
    if (this.#waiters.triers === 0) return;
    for (const waiter of this.#waiters.filter(({ triesOnce }) => triesOnce))
      this.#refuse(waiter, inVain(waiter, this.#known));
  }

  /** A lease that is not extended, or has another ttl, has to be one of its own. */
  #canPassOn({ ttlMs, sentAt, deadline, isUnsettled }: Lease, { terms }: Waiter): boolean {
    if (!this.#cohort) return false;
    const { nextToken, lastToken, endsAt } = this.#cohort;
    const now = this.duties.now();
    if (nextToken > lastToken || now >= endsAt || isUnsettled) return false;
    return terms.watchdog && terms.ttlMs === ttlMs && now < sentAt + (deadline - sentAt) * PASSED_WITHIN;
  }

  #begin(waiter: Waiter): void {
    const contender = new Contender(this.key, this.#contenders && waiter, this, this.duties);
    if (this.#contenders) this.#contenders.set(waiter, contender);
    else this.#contender = contender;
    this.onTurn(contender);
  }

  /** For whom it asks; undefined when nobody is left. */
  #waiterOf({ waiter }: Contender): Waiter | undefined {
    if (!waiter) return this.#waiters.first;
    return waiter.isSettled ? undefined : waiter;
  }

  #end(contender: Contender): void {
    contender.withdraw();
    this.#drop(contender);
  }

  #drop({ waiter }: Contender): void {
    if (waiter) this.#contenders!.delete(waiter);
    else this.#contender = undefined;
  }

  /** Those who wait behind a holder of this process know that it was held until now, whatever comes next. */
  #noteTaken(): void {
    if (this.#waiters.first) this.#sighting = {};
  }

  /** Somebody came or went: asks for those who wait, unless that is being done. */
  #goOn(): void {
    const { first } = this.#waiters;
    if (this.#lease || this.#contender || this.#contenders?.size) return;
    if (first) this.#begin(first);
    else this.duties.onEmpty(this.key);
  }

  get #known(): Known {
    const { backend, now } = this.duties;
    return { key: this.key, lease: this.#lease, sighting: this.#sighting, now: now(), backend };
  }
}

/** Undefined if nothing distinguishes holders in turn. */
function cohortOf({ fencingToken, lastToken = fencingToken }: Grant, endsAt: number): Cohort | undefined {
  return fencingToken === undefined ? undefined : { nextToken: fencingToken + 1, lastToken: lastToken!, endsAt };
}
