import {
  EXCLUSIVE,
  type AcquireOutcome,
  type AcquireRequest,
  type Grant,
  type HandOver,
  type Hold,
  type Place,
  type ReleaseOutcome,
} from '../backend/lock-backend.js';
import { LockUnavailableError, type NodeError } from '../../api/errors.js';
import type { LockGrant } from '../../api/events.js';
import { noteIn } from '../../api/holder.js';
import type { LockMode } from '../../api/lock.js';
import type { LockEngine } from './lock-engine.js';
import type { Lease } from './lease.js';
import { leftMs, monotonic, validityMs } from '../time/clock.js';
import { setImmediate } from '../time/event-loop.js';
import type { Paced } from '../time/pacer.js';
import { onAbort } from './abort-listener.js';
import { answeredTooLate, closed, contended, timedOut, type HolderSeen, type Knowledge } from './refusals.js';
import { timeOf, WaiterList, type Closing, type Waiter } from './waiter.js';

/**
 * The period of the checks of a line that waits, in milliseconds: shorter than a grant that is not confirmed stands, so that no waiter is stuck
 * for longer than that, whatever message, queue or lock was lost.
 */
export const CHECK_MS = 1_000;
/** A wait until the holder's lease ends must find it ended. */
const AFTER_EXPIRY_MS = 1;
/** The first pause of a line that cannot be woken, and the longest, in milliseconds, on average. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [8, 250];
/** The first pause of a line whose process asks for all locks together, in milliseconds, on average. */
const FIRST_POLL_MS = 2;

/** How many turns are asked for beside those of the calls that wait, as a part of these. */
const EXTRA_TURNS_FRACTION = 1 / 4;
/**
 * How often a lock is passed on before other processes have their turn. A grant reserves a fencing token for each, and more would save
 * less than a hundredth of a command for each call.
 */
const COHORT_PASSES = 100;
/** For how many calls beside the first one permits are asked for at once. */
const MAX_BATCHED_CALLS = 100;
/** A lock that was handed over is begun with if it stands for this part of its time longer: enough to be extended. */
const MIN_REMAINING_FRACTION = 0.45;
/** A lock is passed on only in this first part of its lease: its next holder must not begin with a lease that ends. */
const PASS_ON_FRACTION = 1 / 3;
/** The same for a grant that is just being extended, much of which may be over. */
const PASS_ON_FRACTION_PROVISIONAL = 2 / 3;

type Acquired = Extract<AcquireOutcome, { status: 'acquired' }>;
type Contended = Extract<AcquireOutcome, { status: 'contended' }>;

/** Called with the outcome of a release. */
type Released = (outcome: ReleaseOutcome) => void;

/**
 * - `idle`: it asks the store for nothing.
 * - `asking`: an attempt on behalf of the first call is under way.
 * - `queued`: it was refused, and waits for its turn. It asks at the latest a second after the last answer.
 * - `resting`: nobody won, so that chance alone decides who is first: it waits for a while.
 */
type LineState = 'idle' | 'asking' | 'queued' | 'resting';

/**
 * All calls of this process that want one lock in one mode, in the order of their arrival, and what they hold of it. The line asks the store on
 * behalf of the first of them: one attempt at a time, and between two attempts it keeps its place in the queue of the store. A lock that is
 * granted is passed on among the calls for a while: lock cohorting (Dice, Marathe, Shavit, PPoPP 2012). The store tells who waits elsewhere,
 * and the order of the service what follows from that.
 *
 * ```
 * idle            ──▶ asking    a call waits, and no exclusive lease of this process is before it
 * asking          ──▶ idle      granted; or no call waits any more
 * asking          ──▶ queued    refused, as others hold the lock
 * asking          ──▶ resting   refused, and nobody holds it
 * asking          ──▶ asking    refused, but its turn came meanwhile, or it has no place yet; or not answered, and calls have come since
 * queued          ──▶ asking    its turn has come, its pause is over, or it is to be checked
 * queued          ──▶ idle      its turn has come with the lock
 * resting         ──▶ asking    its pause is over
 * queued, resting ──▶ idle      no call waits any more: it leaves its place
 * ```
 *
 * docs/architecture.md has the same as a table: what it does in each state about all that can happen.
 *
 * - exclusive: one lease, which serves one call after the other. The line is idle meanwhile, unless a call adopted the lease while others waited.
 * - permits: a lease for each call, and the line asks for more beside them. Each lease serves one call after the other.
 * - shared: calls that come soon after a grant join its lease; for others the line asks.
 */
export class Line implements Paced<Line> {
  list?: { remove(line: Line): void };
  next?: Line;
  previous?: Line;
  dueAt = 0;
  readonly #waiters = new WaiterList();
  readonly #leases = new LineLeases();
  #state: LineState = 'idle';
  /** The last refusal: who holds the lock, or held it until now. Undefined: nobody else, as far as is known. */
  #seen?: HolderSeen;
  /** Its place in the queue of the store, if it has one there, or would have by its next attempt. */
  #place?: Place;
  /** When the place was first asked for, by the monotonic clock. */
  #placeAskedAt = 0;
  /** When the latest attempt was about to be sent. */
  #attemptedAt = 0;
  /** Whether its turn may have come since it last began to ask: the answer in flight may be older than that. */
  #isWoken = false;
  /** The same before it last began to ask. */
  #wasWoken = false;
  #timer?: NodeJS.Timeout;
  #backOff?: BackOff;

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

  /** How many calls wait behind a lease, and so have no place in the store: shared locks and permits are asked for beside the leases. */
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

  /** The call is granted a lease, or refused, sooner or later. */
  join(waiter: Waiter): void {
    const shared = this.#waiters.size === 0 ? this.#sharedWith(waiter) : undefined;
    if (shared) return this.#share(shared, waiter);
    const refusal = this.#whyNotWait(waiter);
    if (refusal) {
      waiter.refuse(refusal);
      return this.#goOn(); // it may have been made for this call alone
    }
    const asks = this.#mayAsk;
    this.#waiters.push(waiter);
    // Most calls are answered soon: one that asks at once gets its timer when that has taken as long as a check.
    const isLong = !waiter.wasRefused && timeOf(waiter.request, this.engine.backend) >= CHECK_MS;
    if (!asks || !isLong || waiter.request.signal) this.#letGiveUp(waiter);
    if (asks && !waiter.isSettled) this.#ask();
  }

  /**
   * Has a lock that a call of this process has adopted, or downgraded. Calls that wait keep their place, as behind a holder elsewhere: it
   * is older.
   */
  adopt(lease: Lease): void {
    this.#endStale();
    this.#leases.add(lease);
    if (this.mode === 'exclusive') return;
    const { limits, now } = this.engine;
    // The time limit of one call must not end the lock of others.
    if (lease.demands.overstaysAt === Infinity)
      lease.share = { turnsLeft: COHORT_PASSES, until: now() + limits.cohortMs };
    this.#goOn();
  }

  /**
   * The holder of a lease is done: passes the lock on to the next call of this process.
   * @returns false when there is none that may have it: the lock has to be given back
   */
  passOn(lease: Lease): boolean {
    const next = this.#waiters.first;
    if (!next || !this.#canPassOn(lease, next)) return false;
    this.#leases.remove(lease);
    this.#pass(lease, next);
    if (this.#state !== 'idle') this.#goOn(); // permits are asked for beside their leases, and perhaps for no call any more
    return true;
  }

  /** Gives the lock of a lease back to the store. @param done called with the outcome */
  giveBack(lease: Lease, done: Released): void {
    this.#leases.remove(lease);
    this.#noteHeldUntilNow();
    this.#handBack(lease.grant, done, lease.demands.keptUntil);
  }

  /** A lease was lost, detached or downgraded. Called once for each, but not within the call that found it lost. */
  left(lease: Lease): void {
    if (!this.#leases.remove(lease)) return;
    this.#noteHeldUntilNow();
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
    const asking = this.#mayBeFree && this.#state !== 'idle' ? this.#waiters.first : undefined;
    for (const waiter of this.#waiters.filter((each) => each.closing === closing && each !== asking))
      this.#giveUp(waiter, closed(this.key));
  }

  /** Messages did not arrive until now. @returns whether it waits for one, and so has to ask */
  mayHaveMissedItsTurn(): boolean {
    if (!this.#place) return false;
    this.#isWoken = true;
    return this.#state === 'queued';
  }

  /** Its turn may have come. @param handOver the lock was handed over to its place */
  onTurn(handOver?: HandOver): void {
    this.#isWoken = true; // for the answer in flight
    if (this.#state !== 'queued') return;
    if (handOver && this.#beginWith(handOver)) this.#goOn();
    else this.#ask();
  }

  /** Its pause is over, or it is to be checked; or it has been asking for a while. */
  onDue(): void {
    const { first } = this.#waiters;
    if (this.#state !== 'asking') this.#ask();
    else if (first) this.#letGiveUp(first);
  }

  /** Whether the lock may be free, as far as is known: a call that asks for it does not wait yet. */
  get #mayBeFree(): boolean {
    return !this.#seen && !this.#isHeldHere;
  }

  /** Whether calls wait for an exclusive lease of this process, which is passed on when it is released. */
  get #isHeldHere(): boolean {
    return this.mode === 'exclusive' && this.#leases.first !== undefined;
  }

  /** Whether a call that waits needs an attempt, and none is under way. */
  get #mayAsk(): boolean {
    return this.#state === 'idle' && !this.#isHeldHere;
  }

  /** Why a call is refused instead of waiting. */
  #whyNotWait(waiter: Waiter): Error | undefined {
    const { maxWaiters } = this.engine.limits;
    const mayBeFree = this.#mayBeFree;
    if (!mayBeFree && waiter.triesOnce) return contended(waiter, this.#known);
    if (this.engine.waiting(this.key) >= maxWaiters + (mayBeFree ? 1 : 0))
      return contended(waiter, this.#known, maxWaiters);
    const asksForFree = mayBeFree && this.#mayAsk;
    return waiter.closing.phase === 'open' || asksForFree ? undefined : closed(this.key);
  }

  /** Called when a call came or went: a line with calls asks, or holds the lock; one without calls waits for nothing. */
  #goOn(): void {
    this.#letJoin();
    const { first } = this.#waiters;
    if (first) {
      const { hold, ticket } = this.#place ?? {};
      const isPlaceOfOther = this.#state === 'queued' && ticket !== undefined && !isFor(ticket, first, hold);
      if (this.#mayAsk || isPlaceOfOther) this.#ask();
      return;
    }
    if (this.#state === 'queued' || this.#state === 'resting') this.#stopAsking();
    if (this.#state !== 'idle') return;
    this.#seen = undefined; // nothing renews it, and leases of the line may keep that
    if (!this.#leases.first) this.engine.forget(this);
  }

  /** @param givenBack a grant that is given back in the same step */
  #ask(givenBack?: { grant: Grant; released: Released }): void {
    const { backend, checks, inFlight, now } = this.engine;
    const first = this.#waiters.first!;
    if (this.#seen) this.#seen.askedAt ??= now();
    this.#stopWaiting();
    this.#state = 'asking';
    this.#wasWoken = this.#isWoken;
    this.#isWoken = false;
    const request = this.#requestFor(first);
    const cameAt = request.place?.arrivedAt ?? first.arrivedAt;
    if (!first.mayGiveUp) checks.add(this, this.#attemptedAt + CHECK_MS, CHECK_MS);
    inFlight.begin();
    const done = (outcome: AcquireOutcome) => {
      checks.remove(this);
      this.#answered(request, cameAt, outcome);
      this.#goOn();
      inFlight.end();
    };
    if (givenBack) backend.releaseAndAcquire!(givenBack.grant, givenBack.released, request, done);
    else backend.acquire(request, done);
  }

  #requestFor(first: Waiter): AcquireRequest {
    const { backend, nextOwner, now, order } = this.engine;
    const { hold } = first;
    const { ttlMs, note } = first.request;
    const turns = this.#takesPlace(first) ? this.#turns(first) : undefined;
    const place = turns === undefined || !backend.waitQueue ? undefined : this.#askForPlace(first, turns);
    const owner = place && backend.waitQueue?.handsOver ? place.ticket : nextOwner(note);
    this.#attemptedAt = now();
    const beside = this.#beside(first);
    const others = beside > 0 ? Array.from({ length: beside }, () => nextOwner(note)) : undefined;
    return { key: this.key, hold, owner, others, ttlMs, place, turns, inOrder: order.isByArrival, asker: this };
  }

  /** An attempt that will probably win, or has no call behind it, does without a place, which costs arguments. */
  #takesPlace(first: Waiter): boolean {
    const isContested = this.#seen !== undefined || this.#waiters.size > 1;
    return this.#place !== undefined || isContested || (!first.triesOnce && this.engine.wasContested(this.key));
  }

  /**
   * @param turns only of a new place: they are part of its entry in the queue of the store, by which that finds it
   * @returns the place as it is asked for now: its calls, its time, and what the store said of it, may be others in the next attempt
   */
  #askForPlace(first: Waiter, turns: number): Place {
    const { hold } = first;
    const { byTicket, nextOwner, order } = this.engine;
    // The call that it was taken for has given up.
    if (this.#place && !isFor(this.#place.ticket, first, this.#place.hold)) this.#leavePlace();
    if (!this.#place) {
      this.#placeAskedAt = monotonic();
      const ticket = nextOwner(first.request.note);
      this.#place = { ticket, hold, turns, calls: 0, arrivedAt: 0, isTaken: false };
      byTicket.set(ticket, this);
    }
    const arrivedAt = order.placeAt(first.arrivedAt, this.#placeAskedAt);
    return (this.#place = { ...this.#place, calls: this.engine.waiting(this.key), arrivedAt });
  }

  /** For how many turns a grant is asked for: those of the calls that wait, and a quarter more, as some come until they are over. */
  #turns(first: Waiter): number {
    if (this.mode !== 'exclusive' || first.request.cohort === false) return 1;
    const { size } = this.#waiters;
    return 1 + Math.min(COHORT_PASSES, size - 1 + Math.floor(size * EXTRA_TURNS_FRACTION));
  }

  /** For how many calls behind the first one permits are asked for along with it. */
  #beside(first: Waiter): number {
    if (first.hold.mode !== 'permits') return 0;
    const atMost = Math.min(MAX_BATCHED_CALLS, Math.floor(first.hold.limit / first.hold.permits) - 1);
    let count = 0;
    for (let next = first.next; next && count < atMost && isInterchangeable(first, next); next = next.next) count++;
    return count;
  }

  /**
   * Begins with a lock that was handed over, while its lease is extended: docs/adr/0018-begin-with-the-grant.md. A grant is
   * confirmed first if it is for a call whose lease is not extended, when too little is left, and when the store cannot have
   * made it since its last answer to the place.
   * @returns whether it did
   */
  #beginWith(handOver: HandOver): boolean {
    const place = this.#place;
    const first = this.#waiters.first!;
    const { limits, now } = this.engine;
    const { ttlMs, watchdog } = first.request;
    const handed = place && watchdog ? handOver.grantOf(this.key, place) : undefined;
    if (!place || !handed) return false;
    const { grant, sentAt } = handed;
    const grantLeftMs = sentAt + validityMs(handOver.ttlMs, limits.marginMs) - now();
    const leftMs = Math.min(grantLeftMs, validityMs(ttlMs, limits.marginMs));
    if (leftMs < handOver.ttlMs * MIN_REMAINING_FRACTION) return false;
    this.#becomeIdle();
    // A line that waits has a place that is for its first call.
    if (this.#mayBegin(first, grant, place.arrivedAt)) this.#begin(first, grant, handOver.ttlMs, sentAt, ttlMs);
    else this.#handBack(grant);
    return true;
  }

  /** @param cameAt when the call came that the attempt was for, by the monotonic clock */
  #answered(request: AcquireRequest, cameAt: number, outcome: AcquireOutcome): void {
    switch (outcome.status) {
      case 'acquired':
        // The grant came without a message.
        if (this.#place?.isTaken && !this.#wasWoken) this.engine.backend.waitQueue?.checkListening(this.key);
        this.#becomeIdle();
        return this.#acquired(request, cameAt, outcome);
      case 'contended':
        if (this.#place && outcome.queued) this.#place = { ...this.#place, isTaken: true, hint: outcome.hint };
        return this.#contended(request, outcome);
      case 'unavailable':
        this.#leavePlace();
        return this.#unavailable(outcome.causes);
    }
  }

  #acquired(request: AcquireRequest, cameAt: number, { grant, others = [], sentAt, smallerLimit }: Acquired): void {
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, request.hold, smallerLimit);
    for (const each of [grant, ...others]) this.#use(each, request, cameAt, sentAt);
  }

  #use(grant: Grant, { ttlMs, hold }: AcquireRequest, cameAt: number, sentAt: number): void {
    const { limits, now } = this.engine;
    const answeredAt = now();
    const isOfUse = answeredAt < sentAt + validityMs(ttlMs, limits.marginMs);
    const first = this.#waiters.first;
    const isMeant = first?.request.ttlMs === ttlMs && isFor(grant.owner, first, hold);
    if (isOfUse && isMeant && this.#mayBegin(first, grant, cameAt)) {
      this.#begin(first, grant, ttlMs, sentAt);
      return;
    }
    // The call that it was for has given up, and the next one wants it otherwise, or came later than others elsewhere; or nothing is
    // left of the lease: this process was paused, or the store is slower than the ttl.
    if (!isOfUse && first?.remainingMs === 0)
      this.#refuse(first, answeredTooLate(this.key, ttlMs, answeredAt - sentAt));
    else if (first) this.#letGiveUp(first);
    this.#handBack(grant);
  }

  #contended({ hold }: AcquireRequest, refusal: Contended): void {
    const { owner, others, remainingMs, isKept, smallerLimit } = refusal;
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, hold, smallerLimit);
    const answeredAt = this.engine.now();
    this.#seen = { owner, others, endsAt: remainingMs === undefined ? undefined : answeredAt + remainingMs, isKept };
    this.engine.noteContested(this.key);
    this.#refuseTriers();
    const { first } = this.#waiters;
    if (first && first.closing.phase !== 'open') this.#refuse(first, closed(this.key));
    else if (first) this.#letGiveUp(first);
    if (this.#waiters.size === 0) return this.#stopAsking();
    const { waitQueue } = this.engine.backend;
    if (waitQueue && !waitQueue.isListening(this.key)) waitQueue.listen(this.key, this.engine);
    // A line takes its place at once, also before messages arrive: after a pause by chance, calls for another mode would come first.
    const isWithoutPlace = waitQueue !== undefined && !this.#place && remainingMs !== undefined;
    if (this.#isWoken || isWithoutPlace) this.#ask();
    else this.#wait(refusal, answeredAt);
  }

  /** Waits until it is woken, until its pause is over, or until it is to be checked. */
  #wait({ queued, remainingMs }: Contended, answeredAt: number): void {
    const { backend, checks, now } = this.engine;
    this.#state = remainingMs === undefined ? 'resting' : 'queued';
    let pauseMs: number;
    if (queued && remainingMs !== undefined && backend.waitQueue?.isListening(this.key)) {
      pauseMs = Math.max(0, remainingMs) + AFTER_EXPIRY_MS;
      if (pauseMs >= CHECK_MS) return checks.add(this, now() + CHECK_MS, CHECK_MS);
    } else {
      this.#backOff ??= new BackOff(backend.pollEveryMs);
      pauseMs = this.#backOff.next(remainingMs, answeredAt - this.#attemptedAt);
    }
    this.#timer = setTimeout(Line.#pauseIsOver, pauseMs, this);
  }

  // One function for all, as a closure for each line is memory that lives as long as it waits.
  static readonly #pauseIsOver = (line: Line): void => line.engine.checks.hurry([line]);

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.engine.checks.remove(this);
  }

  /** No call is left that it could ask for. */
  #stopAsking(): void {
    this.#leavePlace();
    this.#becomeIdle();
  }

  /** The lock that it asked for is its own, or nobody wants it any more. */
  #becomeIdle(): void {
    this.#stopWaiting();
    this.#dropPlace();
    this.#state = 'idle';
    this.#backOff = undefined;
  }

  #leavePlace(): void {
    if (this.#place?.isTaken) this.engine.backend.waitQueue?.leave(this.key, this.#place);
    this.#dropPlace();
  }

  #dropPlace(): void {
    if (!this.#place) return;
    this.engine.byTicket.delete(this.#place.ticket);
    this.#place = undefined;
  }

  /** The calls behind a failed attempt do not make the same one again, or a queue would fail one by one. */
  #unavailable(causes: readonly NodeError[]): void {
    for (const waiter of this.#waiters.filter(({ startedAt }) => startedAt <= this.#attemptedAt))
      this.#refuse(waiter, LockUnavailableError.from('acquired', this.key, causes));
    if (this.#waiters.size > 0) this.#ask();
    else this.#stopAsking();
  }

  /** Gives a grant back, and asks for the next call: in one step, where the store can. */
  #handBack(grant: Grant, released: Released = ignore, keepUntil = 0): void {
    const { backend } = this.engine;
    // One that waits beside a lease that was adopted has its place already, and may be asking.
    if (this.#waiters.size > 0 && this.#state === 'idle' && leftMs(keepUntil) === 0 && backend.releaseAndAcquire) {
      this.#ask({ grant, released });
      return;
    }
    backend.release(grant, { keepUntil }, released);
    this.#goOn();
  }

  /** Whether the first call may have a grant. The call it was asked for may be gone; the next one may have to wait behind other processes. */
  #mayBegin({ arrivedAt }: Waiter, { nobodyBefore = -Infinity }: Grant, cameAt: number): boolean {
    const { now, order } = this.engine;
    return order.mayServe({ nobodyBefore: Math.max(nobodyBefore, cameAt), until: Infinity }, arrivedAt, now());
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
    first.lose('expired');
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

  /** The lease of this process that a call can share. One that nobody extends would end under a call that counts on its watchdog. */
  #sharedWith(waiter: Waiter): Lease | undefined {
    const lease = this.mode === 'shared' ? this.#leases.last : undefined;
    return lease?.autoExtend && lease.checkHeld() && this.#canPassOn(lease, waiter) ? lease : undefined;
  }

  #share(lease: Lease, waiter: Waiter): void {
    lease.demands.join(waiter.request.ttlMs);
    waiter.grant(lease, 'passed');
  }

  #grant(waiter: Waiter, lease: Lease, how: LockGrant): void {
    this.#waiters.remove(waiter);
    if (this.#seen?.owner !== undefined) this.engine.noteContested(this.key); // until now: the refusal may have been long ago
    if (this.#state === 'idle') this.#seen = undefined; // one that waits beside a lease that is passed on has found the others in its way
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
  #letGiveUp(waiter: Waiter): void {
    if (waiter.mayGiveUp || waiter.isSettled) return;
    const { signal } = waiter.request;
    const remainingMs = Math.max(0, timeOf(waiter.request, this.engine.backend) - waiter.waitedMs);
    waiter.giveUpBy(
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
   * A lease that is not extended, or has another ttl, has to be one of its own; one that is kept, or was to be, stands longer. Work
   * that is guarded may still run in its transaction after the release.
   */
  #canPassOn(lease: Lease, waiter: Waiter): boolean {
    const { request, arrivedAt } = waiter;
    const { share } = lease;
    if (!share || share.turnsLeft === 0 || request.cohort === false || lease.isGuarded) return false;
    if (!isFor(lease.grant.owner, waiter, lease.grant.hold)) return false;
    if (!request.watchdog || request.ttlMs !== lease.ttlMs) return false;
    if (lease.mayStandOtherwise) return false;
    const now = this.engine.now();
    if (!this.engine.order.mayServe(share, arrivedAt, now)) return false;
    const { sentAt, deadline, provisionalTtlMs } = lease;
    return (
      now <
      sentAt + (deadline - sentAt) * (provisionalTtlMs === undefined ? PASS_ON_FRACTION : PASS_ON_FRACTION_PROVISIONAL)
    );
  }

  /** Notes for the calls behind a holder of this process that the lock was held until now, whatever comes next. */
  #noteHeldUntilNow(): void {
    if (this.#waiters.first) this.#seen = {};
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
    const own = this.#isHeldHere ? this.#leases.first : undefined;
    const lease = own?.checkAlive() ? own : undefined;
    const seen = this.#seen ?? (own ? {} : undefined);
    return { key: this.key, lease, seen, now: now(), backend };
  }
}

/** Whether permits for the one are of use for the other. */
function isInterchangeable(first: Waiter, other: Waiter): boolean {
  const [{ ttlMs, note }, { request }] = [first.request, other];
  return request.ttlMs === ttlMs && request.note === note && isSameHold(first.hold, other.hold);
}

/**
 * How long a line that cannot be woken waits before it asks again: jittered, growing, never past the end of the
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
   * @param attemptMs how long the attempt took: after a tie the processes back off for some round trips
   */
  next(remainingMs: number | undefined, attemptMs: number): number {
    if (remainingMs === undefined) return (1 + Math.random() * 8) * Math.max(1, attemptMs);
    const { pollEveryMs = Infinity } = this;
    const isAligned = this.#nextMs >= pollEveryMs;
    const delayMs = isAligned ? pollEveryMs - (monotonic() % pollEveryMs) : this.#nextMs * (0.5 + Math.random());
    this.#nextMs = Math.min(LONGEST_PAUSE_MS, pollEveryMs, this.#nextMs * 1.5);
    return Math.min(delayMs, Math.max(0, remainingMs) + AFTER_EXPIRY_MS);
  }
}

/** Whether a call can have the grant, or the place, of an owner value: one that is held as it wants, and shows its note. */
function isFor(owner: string, { hold, request }: Waiter, held: Hold = EXCLUSIVE): boolean {
  return isSameHold(held, hold) && noteIn(owner) === request.note;
}

/** Whether who holds a lock so can pass it on to who wants it so. */
function isSameHold(held: Hold, wanted: Hold): boolean {
  if (held === wanted) return true;
  if (held.mode !== 'permits' || wanted.mode !== 'permits') return held.mode === wanted.mode;
  return held.permits === wanted.permits && held.limit === wanted.limit;
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
