import {
  EXCLUSIVE,
  type AcquireOutcome,
  type AcquireRequest,
  type Grant,
  type HandOver,
  type ReleaseOutcome,
} from '../backend/lock-backend.js';
import { LockUnavailableError, type NodeError } from '../../api/errors.js';
import type { LockGrant } from '../../api/events.js';
import type { LockMode } from '../../api/lock.js';
import type { LockEngine } from '../engine/lock-engine.js';
import type { Lease } from '../lease/lease.js';
import { leftMs, validityMs } from '../time/clock.js';
import { setImmediate } from '../time/event-loop.js';
import { onAbort } from './abort-listener.js';
import { Bid, CHECK_MS, isSameHold, type Bidder } from './bid.js';
import { answeredTooLate, closed, contended, timedOut, type HolderSeen, type Knowledge } from './refusals.js';
import { timeOf, WaiterList, type Closing, type Waiter } from './waiter.js';

/** How many turns are asked for beside those of the calls that wait, as a part of these. */
const SURPLUS = 1 / 4;
/**
 * How often a lock is passed on before other processes have their turn. A grant reserves a fencing token for each, and more would save
 * less than a hundredth of a command for each call.
 */
const COHORT_PASSES = 100;
/** For how many calls beside the first one permits are asked for at once. */
const MOST_BESIDE = 100;
/** A lock that was handed over is begun with if it stands for this part of its time longer: enough to be extended. */
const BEGIN_WITH = 0.45;
/** A lock is passed on only in this first part of its lease: its next holder must not begin with a lease that ends. */
const PASSED_WITHIN = 1 / 3;
/** The same for a grant that is just being extended, much of which may be over. */
const PASSED_MEANWHILE = 2 / 3;

/**
 * All calls of this process that want one lock in one mode, in the order of their arrival, what they hold of it, and one bid that asks the
 * store on behalf of the first of them. A lock that is granted is passed on among the calls for a while: lock cohorting
 * (Dice, Marathe, Shavit, PPoPP 2012). The store tells who waits elsewhere, and the order of the service what follows from that.
 *
 * - exclusive: one lease, or a bid. The lease serves one call after the other.
 * - permits: a lease for each call, and a bid beside them. Each lease serves one call after the other.
 * - shared: calls that come soon after a grant join its lease; for others there is a bid.
 */
export class Line implements Bidder {
  readonly #waiters = new WaiterList();
  #bid?: Bid;
  readonly #leases = new LineLeases();
  #seen?: HolderSeen;

  constructor(
    readonly key: string,
    readonly mode: LockMode,
    private readonly engine: LockEngine,
  ) {}

  /** What it holds. */
  get leases(): Lease[] {
    return this.#leases.all;
  }

  /** How many calls wait. */
  get size(): number {
    return this.#waiters.size;
  }

  /** How many calls wait behind a lease, and so have no place in the store: for shared locks and permits there is a bid beside the leases. */
  get behind(): number {
    return this.mode === 'exclusive' ? this.#waiters.size : 0;
  }

  /** Whether an attempt is of use: asked when it has waited in this process, and is about to be sent. */
  get isWanted(): boolean {
    return this.#waiters.size > 0;
  }

  eachWaiter(call: (waiter: Waiter) => void): void {
    for (let waiter = this.#waiters.first; waiter; waiter = waiter.next) call(waiter);
  }

  join(waiter: Waiter): void {
    const { backend, limits } = this.engine;
    const shared = this.#waiters.size === 0 ? this.#sharedWith(waiter) : undefined;
    if (shared) return this.#share(shared, waiter);
    const mayBeFree = this.#mayBeFree;
    if (!mayBeFree && waiter.triesOnce) {
      waiter.refuse(contended(waiter, this.#known));
      return;
    }
    // A call that asks for a lock that may be free does not wait yet.
    if (this.engine.waiting(this.key) >= limits.maxWaiters + (mayBeFree ? 1 : 0)) {
      waiter.refuse(contended(waiter, this.#known, limits.maxWaiters));
      return;
    }
    const asks = this.#needsBid;
    if (waiter.closing.phase !== 'open' && (!mayBeFree || !asks)) {
      waiter.refuse(closed(this.key));
      return;
    }
    this.#waiters.push(waiter);
    // Most calls are answered soon: one that asks at once gets its timer when that has taken as long as a check.
    const isLong = !waiter.wasRefused && timeOf(waiter.request, backend) >= CHECK_MS;
    if (!asks || !isLong || waiter.request.signal) this.#limit(waiter);
    if (asks && !waiter.isSettled) this.#ask();
  }

  /**
   * Keeps a lock that a call of this process has adopted, or downgraded. Calls that wait keep their bid, as behind a holder elsewhere: its
   * place in the queue is older.
   */
  adopt(lease: Lease): void {
    this.#endStale();
    this.#leases.add(lease);
    if (this.mode === 'exclusive') return;
    const { limits, now } = this.engine;
    // The time limit of one call must not end the lock of others.
    if (lease.overstaysAt === Infinity) lease.share = { turnsLeft: COHORT_PASSES, until: now() + limits.cohortMs };
    this.#goOn();
  }

  /**
   * The holder of a lease is done: passes the lock on to the next call of this process, or gives it back to the store.
   * @param done called with the outcome of the release
   * @returns whether it was passed on, so that nothing is released
   */
  giveBack(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    this.#leases.remove(lease);
    const next = this.#waiters.first;
    if (next && this.#canPassOn(lease, next)) {
      this.#pass(lease, next);
      if (this.#bid) this.#goOn(); // permits have one beside their leases, which may have no call any more
      return true;
    }
    this.#noteTaken();
    this.#handBack(lease.grant, done, lease.keepUntil);
    return false;
  }

  /** A lease was lost, detached or downgraded. Called once for each, but not within the call that found it lost. */
  left(lease: Lease): void {
    if (!this.#leases.remove(lease)) return;
    this.#noteTaken();
    this.#goOn();
  }

  /** Called when the lock may have been taken by force from this owner: asks the store, and passes nothing on until then. */
  onTaken(owner: string): void {
    const lease = this.#leases.of(owner);
    if (!lease) return;
    lease.share = undefined;
    this.engine.leases.check(lease);
  }

  /** Calls that may not wait any more are refused. A call that asks for a lock that may be free does not wait yet. */
  refuseWaiting(closing: Closing): void {
    const asking = this.#mayBeFree && this.#bid ? this.#waiters.first : undefined;
    for (const waiter of this.#waiters.filter((each) => each.closing === closing && each !== asking))
      this.#giveUp(waiter, closed(this.key));
  }

  /** Messages arrive from now on: the turn of a bid with a place may have come before. */
  onListening(): void {
    const bid = this.#bid;
    if (bid?.place && bid.wake()) this.engine.checks.hurry([bid]);
  }

  /** The turn of the bid, which waits, may have come. @param handOver the lock was handed over to it */
  onTurn(handOver?: HandOver): void {
    if (handOver && this.#beginWith(handOver)) this.#goOn();
    else this.#ask();
  }

  /** The bid, which waits or rests, is to ask again; or it has been asking for a while. */
  onDue(): void {
    const first = this.#waiters.first;
    if (!this.#bid!.isAsking) this.#ask();
    else if (first) this.#limit(first);
  }

  /** @param givenBack a grant that is given back in the same step, and who is told the outcome */
  #ask(givenBack?: { grant: Grant; released: (outcome: ReleaseOutcome) => void }): void {
    const { backend, inFlight, now, order } = this.engine;
    const first = this.#waiters.first!;
    const bid = (this.#bid ??= new Bid(this, this.engine));
    if (this.#seen) this.#seen.askedAt ??= now();
    // An attempt that will probably win, or has no call behind it, does without a place, which costs arguments.
    const hasCompany = this.#seen !== undefined || this.#waiters.size > 1;
    const mayWait = hasCompany || (!first.triesOnce && this.engine.wasContested(this.key));
    const takesPlace = bid.place !== undefined || (order.isByArrival ? !first.triesOnce : mayWait);
    const turns = takesPlace ? this.#turns(first) : undefined;
    const request = bid.ask(first, turns, this.#beside(first));
    if (!first.isLimited) bid.checkAfter(bid.attemptedAt);
    inFlight.begin();
    const done = (outcome: AcquireOutcome) => {
      const arrivedAt = bid.place?.arrivedAt;
      bid.answered(outcome);
      this.#conclude(bid, request, outcome, arrivedAt);
      inFlight.end();
    };
    if (givenBack) backend.turn!(givenBack.grant, givenBack.released, request, done);
    else backend.acquire(request, done);
  }

  /** For how many turns a grant is asked for: those of the calls that wait, and a quarter more, as some come until they are over. */
  #turns(first: Waiter): number {
    if (this.mode !== 'exclusive' || first.request.cohort === false) return 1;
    const { size } = this.#waiters;
    return 1 + Math.min(COHORT_PASSES, size - 1 + Math.floor(size * SURPLUS));
  }

  /** For how many calls behind the first one permits are asked for along with it. */
  #beside(first: Waiter): number {
    if (first.hold.mode !== 'permits') return 0;
    const atMost = Math.min(MOST_BESIDE, Math.floor(first.hold.limit / first.hold.permits) - 1);
    let count = 0;
    for (let next = first.next; next && count < atMost && isAlike(first, next); next = next.next) count++;
    return count;
  }

  /**
   * Begins with a lock that was handed over, while its lease is extended: docs/adr/0018-begin-with-the-grant.md. A grant is
   * confirmed first if it is for a call whose lease is not extended, when too little is left, and when the store cannot have
   * made it since its last answer to the place.
   * @returns whether it did
   */
  #beginWith(handOver: HandOver): boolean {
    const { place } = this.#bid!;
    const first = this.#waiters.first!;
    const { limits, now } = this.engine;
    const { ttlMs, watchdog } = first.request;
    const handed = place && watchdog ? handOver.grantOf(this.key, place) : undefined;
    if (!place || !handed) return false;
    const { grant, sentAt } = handed;
    const grantLeftMs = sentAt + validityMs(handOver.ttlMs, limits.marginMs) - now();
    const leftMs = Math.min(grantLeftMs, validityMs(ttlMs, limits.marginMs));
    if (leftMs < handOver.ttlMs * BEGIN_WITH) return false;
    this.#bid!.won();
    this.#bid = undefined;
    const isMeant = isSameHold(place.hold, first.hold); // its call may have gone, and the next want more permits
    if (isMeant && this.#mayBegin(first, grant, place.arrivedAt))
      this.#begin(first, grant, handOver.ttlMs, sentAt, ttlMs);
    else this.#handBack(grant);
    return true;
  }

  /** @param arrivedAt when the place counts as taken that was asked with, if one was */
  #conclude(bid: Bid, request: AcquireRequest, outcome: AcquireOutcome, arrivedAt: number | undefined): void {
    switch (outcome.status) {
      case 'acquired':
        this.#bid = undefined;
        this.#acquired(request, outcome, arrivedAt);
        break;
      case 'contended':
        this.#contended(bid, outcome);
        break;
      case 'unavailable':
        this.#unavailable(bid, outcome.causes);
        break;
    }
    this.#goOn();
  }

  #acquired(
    request: AcquireRequest,
    { grant, others = [], sentAt, smallerLimit }: Extract<AcquireOutcome, { status: 'acquired' }>,
    arrivedAt: number | undefined,
  ): void {
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, request.hold, smallerLimit);
    for (const each of [grant, ...others]) this.#use(each, request, sentAt, arrivedAt);
  }

  #use(grant: Grant, { ttlMs, hold }: AcquireRequest, sentAt: number, arrivedAt: number | undefined): void {
    const { limits, now } = this.engine;
    const answeredAt = now();
    const isOfUse = answeredAt < sentAt + validityMs(ttlMs, limits.marginMs);
    const first = this.#waiters.first;
    const isMeant = first?.request.ttlMs === ttlMs && isSameHold(hold, first.hold);
    if (isOfUse && isMeant && this.#mayBegin(first, grant, arrivedAt)) {
      this.#begin(first, grant, ttlMs, sentAt);
      return;
    }
    // The call that it was for has given up, and the next one wants it otherwise, or came later than others elsewhere; or nothing is
    // left of the lease: this process was paused, or the store is slower than the ttl.
    if (!isOfUse && first?.remainingMs === 0)
      this.#refuse(first, answeredTooLate(this.key, ttlMs, answeredAt - sentAt));
    else if (first) this.#limit(first);
    this.#handBack(grant);
  }

  #contended(bid: Bid, refusal: Extract<AcquireOutcome, { status: 'contended' }>): void {
    const { owner, others, remainingMs, isKept, smallerLimit } = refusal;
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, this.#waiters.first?.hold, smallerLimit);
    const answeredAt = this.engine.now();
    this.#seen = { owner, others, endsAt: remainingMs === undefined ? undefined : answeredAt + remainingMs, isKept };
    this.engine.noteContested(this.key);
    this.#refuseTriers();
    const { first } = this.#waiters;
    if (first && first.closing.phase !== 'open') this.#refuse(first, closed(this.key));
    else if (first) this.#limit(first);
    if (this.#waiters.size === 0) {
      this.#withdraw(bid);
      return;
    }
    const { waitQueue } = this.engine.backend;
    if (waitQueue && !waitQueue.isListening(this.key)) waitQueue.listen(this.key, this.engine);
    const pauseMs = bid.pauseMs(refusal, answeredAt);
    if (pauseMs === undefined) this.#ask();
    else bid.wait(pauseMs, remainingMs === undefined);
  }

  /** The calls behind a failed attempt do not make the same one again, or a queue would fail one by one. */
  #unavailable(bid: Bid, causes: readonly NodeError[]): void {
    for (const waiter of this.#waiters.filter(({ startedAt }) => startedAt <= bid.attemptedAt)) {
      this.#refuse(waiter, LockUnavailableError.from('acquired', this.key, causes));
    }
    if (this.#waiters.size > 0) this.#ask();
    else this.#withdraw(bid);
  }

  /** Gives a grant back, and asks for the next call: in one step, where the store can. */
  #handBack(grant: Grant, released: (outcome: ReleaseOutcome) => void = ignore, keepUntil = 0): void {
    const { backend } = this.engine;
    // A bid beside a lease that was adopted has its place already, and may be asking.
    if (this.#waiters.size > 0 && !this.#bid && leftMs(keepUntil) === 0 && backend.turn) {
      this.#ask({ grant, released });
      return;
    }
    backend.release(grant, { keepUntil }, released);
    this.#goOn();
  }

  /** Whether the first call may have a grant: the one that it was asked for may have given up, and others elsewhere come before the next. */
  #mayBegin({ arrivedAt }: Waiter, { nobodyBefore = -Infinity }: Grant, placeAt: number | undefined): boolean {
    if (placeAt === undefined) return true; // without a place it was asked for by whoever is first
    const { now, order } = this.engine;
    return order.mayServe({ nobodyBefore: Math.max(nobodyBefore, placeAt), until: Infinity }, arrivedAt, now());
  }

  #begin(first: Waiter, grant: Grant, ttlMs: number, sentAt: number, extendTo?: number): void {
    const { leases, limits, now } = this.engine;
    const { fencingToken, lastToken = fencingToken, nobodyBefore } = grant;
    this.#endStale();
    const autoExtend = first.request.watchdog;
    const lease = leases.add(this, { grant, fencingToken, ttlMs, sentAt, autoExtend, extendTo });
    const hasTokens = this.mode === 'exclusive';
    const turnsLeft = hasTokens ? (lastToken ?? 0) - (fencingToken ?? 0) : COHORT_PASSES;
    if (turnsLeft > 0 && first.request.cohort !== false) {
      const nextToken = hasTokens ? fencingToken! + 1 : undefined;
      lease.share = { nextToken, turnsLeft, nobodyBefore, until: now() + limits.cohortMs };
    }
    this.#grant(first, lease, extendTo !== undefined || this.#seen ? 'waited' : 'free');
    this.#refuseTriers();
  }

  /** The store has granted the lock anew: a lease that was adopted before, and seems to be held, has ended there. */
  #endStale(): void {
    const { first } = this.#leases;
    if (this.mode !== 'exclusive' || !first) return;
    this.engine.leases.lose(first, 'expired');
    this.#leases.remove(first);
  }

  /** @param lease that of the last call, which has released it */
  #pass(lease: Lease, next: Waiter): void {
    const share = lease.share!;
    share.turnsLeft--;
    const { nextToken } = share;
    if (nextToken !== undefined) share.nextToken = nextToken + 1;
    // Readers have no tokens of their own: this one is of the same phase.
    this.#grant(next, this.engine.leases.pass(lease, nextToken ?? lease.fencingToken), 'passed');
  }

  /** The lease of this process that a call can share. */
  #sharedWith(waiter: Waiter): Lease | undefined {
    const lease = this.mode === 'shared' ? this.#leases.last : undefined;
    return lease?.checkHeld() && this.#canPassOn(lease, waiter) ? lease : undefined;
  }

  #share(lease: Lease, waiter: Waiter): void {
    lease.join(waiter.request.ttlMs);
    waiter.grant(lease, 'passed');
  }

  #grant(waiter: Waiter, lease: Lease, how: LockGrant): void {
    this.#waiters.remove(waiter);
    if (this.#seen?.owner !== undefined) this.engine.noteContested(this.key); // until now: the refusal may have been long ago
    if (!this.#bid) this.#seen = undefined; // one that waits beside a lease that is passed on has found the others in its way
    lease.label = waiter.label;
    this.#leases.add(lease);
    waiter.grant(lease, how);
  }

  #refuse(waiter: Waiter, reason: unknown): void {
    if (!waiter.list) return; // a lock that was found lost meanwhile made it give up; or it is being granted
    this.#waiters.remove(waiter);
    waiter.refuse(reason);
  }

  #giveUp(waiter: Waiter, reason: unknown): void {
    this.#refuse(waiter, reason);
    this.#goOn();
  }

  /** Calls that try once have found others before them. */
  #refuseTriers(): void {
    if (this.#waiters.triers === 0 || this.#mayBeFree) return;
    for (const waiter of this.#waiters.filter(({ triesOnce }) => triesOnce))
      this.#refuse(waiter, timedOut(waiter, this.#known));
  }

  /** Lets a call give up when its time is over, or when its signal aborts. */
  #limit(waiter: Waiter): void {
    if (waiter.isLimited || waiter.isSettled) return;
    const { signal } = waiter.request;
    const remainingMs = Math.max(0, timeOf(waiter.request, this.engine.backend) - waiter.waitedMs);
    waiter.limitBy(
      setTimeout(Line.#timeIsOver, Math.ceil(remainingMs), this, waiter),
      signal && onAbort(signal, () => this.#giveUp(waiter, signal.reason)),
    );
    if (signal?.aborted) this.#giveUp(waiter, signal.reason);
  }

  // One function for all lines, as a closure for each waiter is memory that lives as long as it waits.
  // After a pause of this process timers run first: answers that arrived meanwhile are read before the call is refused.
  static readonly #timeIsOver = (line: Line, waiter: Waiter): void =>
    void setImmediate(() => {
      if (!waiter.isSettled) line.#giveUp(waiter, timedOut(waiter, line.#known));
    });

  /**
   * A lease that is not extended, or has another ttl, has to be one of its own; one that is kept, or was to be, stands longer; that of one
   * that is guarded may not have ended its work when it is released.
   */
  #canPassOn(lease: Lease, { request, arrivedAt, hold }: Waiter): boolean {
    const { share } = lease;
    if (!share || share.turnsLeft === 0 || request.cohort === false || lease.isGuarded) return false;
    if (!isSameHold(lease.grant.hold ?? EXCLUSIVE, hold)) return false;
    if (!request.watchdog || request.ttlMs !== lease.ttlMs) return false;
    const { sentAt, deadline, isUnsettled, provisionalTtlMs, askedForMs, standsTooLong } = lease;
    const isProvisional = provisionalTtlMs !== undefined;
    if ((isUnsettled && !isProvisional) || askedForMs > 0 || standsTooLong) return false;
    const now = this.engine.now();
    if (!this.engine.order.mayServe(share, arrivedAt, now)) return false;
    return now < sentAt + (deadline - sentAt) * (isProvisional ? PASSED_MEANWHILE : PASSED_WITHIN);
  }

  /** Whether the lock may be free, as far as is known. */
  get #mayBeFree(): boolean {
    return !this.#seen && !(this.mode === 'exclusive' && this.#leases.first);
  }

  /** Whether a call that waits needs one more attempt: an exclusive lease is passed on when it is released. */
  get #needsBid(): boolean {
    return !this.#bid && !(this.mode === 'exclusive' && this.#leases.first);
  }

  #withdraw(bid: Bid): void {
    bid.withdraw();
    this.#bid = undefined;
  }

  /** Notes for the calls behind a holder of this process that the lock was held until now, whatever comes next. */
  #noteTaken(): void {
    if (this.#waiters.first) this.#seen = {};
  }

  /** Called when a call came or went: a line with calls has an exclusive lease or a bid, one without calls has no bid. */
  #goOn(): void {
    this.#letJoin();
    if (this.#waiters.size > 0) {
      if (this.#needsBid) this.#ask();
    } else if (this.#bid && !this.#bid.isAsking) this.#withdraw(this.#bid);
    if (this.#waiters.size > 0 || this.#bid) return;
    this.#seen = undefined; // nothing renews it, and leases of the line may keep that
    if (!this.#leases.first) this.engine.forget(this);
  }

  /** Calls that wait share a lease that was just granted. */
  #letJoin(): void {
    for (let next = this.#waiters.first; next; next = this.#waiters.first) {
      const lease = this.#sharedWith(next);
      if (!lease) return;
      this.#waiters.remove(next);
      this.#share(lease, next);
    }
  }

  get #known(): Knowledge {
    const { backend, now } = this.engine;
    // Asking may find a lease lost that has yet to leave: the lock was held until now.
    const own = this.mode === 'exclusive' ? this.#leases.first : undefined;
    const lease = own?.checkAlive() ? own : undefined;
    const seen = this.#seen ?? (own ? {} : undefined);
    return { key: this.key, lease, seen, now: now(), backend };
  }
}

/** Whether permits for the one are of use for the other. */
function isAlike(first: Waiter, other: Waiter): boolean {
  return other.request.ttlMs === first.request.ttlMs && isSameHold(first.hold, other.hold);
}

/** The leases of one line. Most lines have one at most, which needs no list. */
class LineLeases {
  #first?: Lease;
  #others?: Set<Lease>;

  /** One of them. */
  get first(): Lease | undefined {
    return this.#first;
  }

  /** The latest one. */
  get last(): Lease | undefined {
    let last = this.#first;
    if (this.#others) for (const lease of this.#others) last = lease;
    return last;
  }

  get all(): Lease[] {
    return this.#first ? [this.#first, ...(this.#others ?? [])] : [];
  }

  add(lease: Lease): void {
    if (this.#first) (this.#others ??= new Set()).add(lease);
    else this.#first = lease;
  }

  /** @returns whether it was there */
  remove(lease: Lease): boolean {
    if (this.#first !== lease) return this.#others?.delete(lease) ?? false;
    [this.#first] = this.#others ?? [];
    if (this.#first) this.#others!.delete(this.#first);
    return true;
  }

  /** @param owner the owner value of its grant */
  of(owner: string): Lease | undefined {
    if (this.#first?.grant.owner === owner) return this.#first;
    if (this.#others) for (const lease of this.#others) if (lease.grant.owner === owner) return lease;
    return undefined;
  }
}

/** Ignores the outcome of a release, which the backend repeats. */
function ignore(): void {}
