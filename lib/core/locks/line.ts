import type {
  AcquireOutcome,
  AcquireRequest,
  Grant,
  HandOver,
  Place,
  ReleaseOutcome,
} from '../backend/lock-backend.js';
import { LockUnavailableError, type NodeError } from '../../api/errors.js';
import type { LockGrant } from '../../api/events.js';
import type { LockMode } from '../../api/lock.js';
import type { LockEngine } from './lock-engine.js';
import type { Lease } from './lease.js';
import { LineLeases } from './line-leases.js';
import { leftMs, monotonic, validityMs } from '../time/clock.js';
import { setImmediate } from '../time/event-loop.js';
import type { Paced } from '../time/pacer.js';
import { onAbort } from './abort-listener.js';
import { BackOff, pauseAfterTieMs } from './back-off.js';
import { answeredTooLate, closed, contended, timedOut, type HolderSeen, type Knowledge } from './refusals.js';
import { timeOf, WaiterList, type Closing, type Waiter } from './waiter.js';

/**
 * A queued line asks again after this time although no message has come, in milliseconds. An unconfirmed grant lasts twice as long, so no
 * call waits longer for a lost message.
 */
export const CHECK_MS = 1_000;
/** When an attempt has taken this long, in milliseconds, its call gets a timer. Most attempts are answered earlier. */
const SLOW_MS = CHECK_MS;

/** How many more turns are requested, as a fraction of those that the waiting calls need. */
const EXTRA_TURNS_FRACTION = 1 / 4;
/**
 * How often a lock is passed on before other processes have their turn. A grant reserves a fencing token for each pass, and more passes
 * would save less than a hundredth of a command for each call.
 */
const COHORT_PASSES = 100;
/** Maximum number of calls that request their permits together with the first one. */
const MAX_BATCHED_CALLS = 100;
/** A call begins with a handed-over lock only while this fraction of its time remains: enough to extend it. */
const MIN_REMAINING_FRACTION = 0.45;

type Acquired = Extract<AcquireOutcome, { status: 'acquired' }>;
type Contended = Extract<AcquireOutcome, { status: 'contended' }>;

type Released = (outcome: ReleaseOutcome) => void;

/** An attempt for the first call. */
interface Attempt {
  readonly request: AcquireRequest;
  /** When that call arrived, by the monotonic clock. */
  readonly cameAt: number;
  /** When the attempt was about to be sent. */
  readonly askedAt: number;
  /** Whether the turn of the line may have come before. */
  readonly wasWoken: boolean;
}

/** A grant that no call of this process uses any more. */
interface GivenBack {
  readonly grant: Grant;
  readonly released: Released;
}

/**
 * - `idle`: it asks the store for nothing.
 * - `asking`: an attempt for the first call is under way.
 * - `queued`: the attempt was refused, and the line waits for its turn. It asks at the latest a second after the last answer.
 * - `resting`: nobody won the last attempt. The line waits for a random time, and then asks.
 */
type LineState = 'idle' | 'asking' | 'queued' | 'resting';

/**
 * All calls of this process that want one lock in one mode, in the order of their arrival, and the leases that they hold. The line asks the
 * store for its first call: one attempt at a time. Between two attempts it keeps its place in the queue of the store. The calls pass a
 * granted lock on among themselves for a while: lock cohorting (Dice, Marathe, Shavit, PPoPP 2012).
 *
 * ```
 * idle            ──▶ asking    a call waits, and this process holds no exclusive lease
 * asking          ──▶ idle      granted; or no call waits any more
 * asking          ──▶ queued    refused, as others hold the lock
 * asking          ──▶ resting   refused, and nobody holds it
 * asking          ──▶ asking    refused, but its turn has come, or it has no place yet; or not answered, and later calls wait
 * queued          ──▶ asking    its turn has come, its pause is over, or its check is due
 * queued          ──▶ idle      its turn has come with the lock
 * resting         ──▶ asking    its pause is over
 * queued, resting ──▶ idle      no call waits any more: it leaves its place
 * ```
 *
 * docs/architecture.md has the same as a table, with what the line does in each state.
 *
 * - exclusive: one lease, which serves one call after the other. The line is idle meanwhile, unless a call adopted the lease while others waited.
 * - permits: a lease for each call, while the line asks for more. Each lease serves one call after the other.
 * - shared: calls that come soon after a grant share its lease. For later calls the line asks again.
 *
 * The methods follow a call from its arrival to the end of its lease. A method that has not asked the store ends in `#goOn`, which decides what
 * comes next.
 */
export class Line implements Paced<Line> {
  list?: { remove(line: Line): void };
  next?: Line;
  previous?: Line;
  dueAt = 0;
  readonly #waiters = new WaiterList();
  readonly #leases = new LineLeases();
  #state: LineState = 'idle';
  /** The last refusal: who holds the lock, or held it until now. Undefined: as far as this process knows, no other process does. */
  #seen?: HolderSeen;
  /** Its place in the queue of the store. If no attempt has taken the place yet, the next one does. */
  #place?: Place;
  /** Whether its turn may have come since it last began to ask: the answer in flight may be older. */
  #isWoken = false;
  #timer?: NodeJS.Timeout;
  #backOff?: BackOff;

  constructor(
    readonly key: string,
    readonly mode: LockMode,
    private readonly engine: LockEngine,
  ) {}

  get leases(): Lease[] {
    return this.#leases.all;
  }

  /** How many calls wait. */
  get size(): number {
    return this.#waiters.size;
  }

  /** How many calls wait for an exclusive lease of this process. They have no place in the store. */
  get behind(): number {
    return this.mode === 'exclusive' ? this.#waiters.size : 0;
  }

  /** Whether a call still needs the attempt. The backend reads it before it sends an attempt that had to wait. */
  get isWanted(): boolean {
    return this.#waiters.size > 0;
  }

  /** Whether the lock may be free, as far as this process knows. Then a call that asks for it does not wait yet. */
  get #mayBeFree(): boolean {
    return !this.#seen && !this.#isHeldHere;
  }

  /** Whether an exclusive lease of this process is passed on to the next call when it is released. */
  get #isHeldHere(): boolean {
    return this.mode === 'exclusive' && this.#leases.first !== undefined;
  }

  /** Whether the first call needs an attempt, and none is under way. */
  get #mayAsk(): boolean {
    return this.#state === 'idle' && !this.#isHeldHere;
  }

  eachWaiter(call: (waiter: Waiter) => void): void {
    for (let waiter = this.#waiters.first; waiter; waiter = waiter.next) call(waiter);
  }

  /** A call joins. Sooner or later it is granted a lease, or refused. */
  join(waiter: Waiter): void {
    const shared = this.#waiters.size === 0 ? this.#sharedWith(waiter) : undefined;
    if (shared) return this.#share(shared, waiter);
    const refusal = this.#refusalOf(waiter);
    if (refusal) {
      waiter.refuse(refusal);
      return this.#goOn(); // the line may have been made for this call alone
    }
    const asks = this.#mayAsk;
    this.#waiters.push(waiter);
    const hasTime = !waiter.hasWaited && timeOf(waiter.request, this.engine.backend) >= SLOW_MS;
    if (!asks || !hasTime || waiter.request.signal) this.#letGiveUp(waiter);
    if (asks && !waiter.isSettled) this.#ask();
  }

  /** Why a call may not wait. */
  #refusalOf(waiter: Waiter): Error | undefined {
    const { maxWaiters } = this.engine.limits;
    const mayBeFree = this.#mayBeFree;
    if (!mayBeFree && waiter.triesOnce) return contended(waiter, this.#known);
    if (this.engine.waiting(this.key) >= maxWaiters + (mayBeFree ? 1 : 0))
      return contended(waiter, this.#known, maxWaiters);
    const asksForFree = mayBeFree && this.#mayAsk;
    return waiter.closing.phase === 'open' || asksForFree ? undefined : closed(this.key);
  }

  /**
   * Decides what comes next, after a call came or went, an answer arrived, or a lease ended. It asks for the first call, unless it asks or waits
   * already. Without calls it stops waiting.
   * @param back a grant to give back: in one step with the attempt, if the store can do that
   */
  #goOn(back?: GivenBack): void {
    this.#letJoin();
    const { first } = this.#waiters;
    if (first && this.#mayAsk) return this.#ask(back);
    if (back) this.engine.backend.release(back.grant, {}, back.released);
    if (first) {
      if (this.#state === 'queued' && this.#place && !first.canUse(this.#place.ticket, this.#place.hold)) this.#ask();
      return;
    }
    if (this.#state === 'queued' || this.#state === 'resting') this.#stopAsking();
    if (this.#state !== 'idle') return;
    this.#seen = undefined; // the line may stay because of its leases, and nothing would update this
    if (!this.#leases.first) this.engine.forget(this);
  }

  /** Asks the store for the first call. */
  #ask(back?: GivenBack): void {
    const { backend, inFlight, now, pacer } = this.engine;
    const first = this.#waiters.first!;
    if (this.#seen) this.#seen.askedAt ??= now();
    this.#stopWaiting();
    this.#state = 'asking';
    const askedAt = now();
    const request = this.#prepareRequest(first);
    const cameAt = request.place?.arrivedAt ?? first.arrivedAt;
    const attempt: Attempt = { request, cameAt, askedAt, wasWoken: this.#isWoken };
    this.#isWoken = false;
    if (!first.mayGiveUp) pacer.add(this, askedAt + SLOW_MS, SLOW_MS);
    inFlight.begin();
    const done = (outcome: AcquireOutcome) => {
      pacer.remove(this);
      this.#goOn(this.#answered(attempt, outcome));
      inFlight.end();
    };
    if (back && backend.releaseAndAcquire) return backend.releaseAndAcquire(back.grant, back.released, request, done);
    if (back) backend.release(back.grant, {}, back.released);
    backend.acquire(request, done);
  }

  /** Makes the request, with or without a place in the queue. It uses up owner values. */
  #prepareRequest(first: Waiter): AcquireRequest {
    const { backend, nextOwner, order } = this.engine;
    const { hold } = first;
    const { ttlMs, note } = first.request;
    const turns = this.#takesPlace(first) ? this.#turns(first) : undefined;
    const place = turns === undefined || !backend.waitQueue ? undefined : this.#placeFor(first, turns);
    const owner = place && backend.waitQueue?.handsOver ? place.ticket : nextOwner(note);
    const batched = this.#batched(first);
    const others = batched > 0 ? Array.from({ length: batched }, () => nextOwner(note)) : undefined;
    return { key: this.key, hold, owner, others, ttlMs, place, turns, inOrder: order.isByArrival, asker: this };
  }

  /** Whether an attempt takes a place, which costs arguments: only if its call will probably have to wait, or if more calls wait. */
  #takesPlace(first: Waiter): boolean {
    const isContested = this.#seen !== undefined || this.#waiters.size > 1;
    return this.#place !== undefined || isContested || (!first.triesOnce && this.engine.wasContested(this.key));
  }

  /** How many turns it asks for: one for each waiting call, and a quarter more, since more calls come meanwhile. */
  #turns(first: Waiter): number {
    if (this.mode !== 'exclusive' || first.request.cohort === false) return 1;
    const { size } = this.#waiters;
    return 1 + Math.min(COHORT_PASSES, size - 1 + Math.floor(size * EXTRA_TURNS_FRACTION));
  }

  /** How many calls behind the first one can use permits of the same attempt. */
  #batched(first: Waiter): number {
    if (first.hold.mode !== 'permits') return 0;
    const most = Math.min(MAX_BATCHED_CALLS, Math.floor(first.hold.limit / first.hold.permits) - 1);
    let count = 0;
    for (let next = first.next; next && count < most && first.isInterchangeableWith(next); next = next.next) count++;
    return count;
  }

  /**
   * The place for an attempt. A later attempt with it can have another number of calls, another time and another hint.
   * @param turns for a new place: they never change, since the store finds its entry by them
   */
  #placeFor(first: Waiter, turns: number): Place {
    const { hold } = first;
    const { byTicket, nextOwner, order } = this.engine;
    // The call that took the place has given up, and this one wants to hold the lock in another way.
    if (this.#place && !first.canUse(this.#place.ticket, this.#place.hold)) this.#leavePlace();
    if (!this.#place) {
      const ticket = nextOwner(first.request.note);
      this.#place = { ticket, hold, turns, calls: 0, arrivedAt: monotonic(), isTaken: false };
      byTicket.set(ticket, this);
    }
    const arrivedAt = order.placeAt(first.arrivedAt, this.#place.arrivedAt);
    return (this.#place = { ...this.#place, calls: this.engine.waiting(this.key), arrivedAt });
  }

  /** @returns a grant that no call can use */
  #answered(attempt: Attempt, outcome: AcquireOutcome): GivenBack | undefined {
    switch (outcome.status) {
      case 'acquired':
        return this.#acquired(attempt, outcome);
      case 'contended':
        this.#contended(attempt, outcome);
        return undefined;
      case 'unavailable':
        this.#unavailable(attempt, outcome.causes);
        return undefined;
    }
  }

  #acquired(attempt: Attempt, outcome: Acquired): GivenBack | undefined {
    const { grant, others = [], sentAt, smallerLimit } = outcome;
    const { backend } = this.engine;
    if (this.#place?.isTaken && !attempt.wasWoken) backend.waitQueue?.checkListening(this.key); // no message came
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, attempt.request.hold, smallerLimit);
    this.#becomeIdle();
    this.#endStale();
    let unused: Grant | undefined;
    for (const each of [grant, ...others]) {
      if (this.#use(each, attempt, sentAt)) continue;
      if (unused) backend.release(unused, {}, ignore);
      unused = each;
    }
    return unused && { grant: unused, released: ignore };
  }

  /**
   * Begins with a grant if the first call can use it. The call for which it was requested may have given up. The next call may want to hold the
   * lock in another way, or may have come later than calls of other processes.
   * @returns false if the first call cannot use it
   */
  #use(grant: Grant, { request, cameAt }: Attempt, sentAt: number): boolean {
    const { ttlMs, hold } = request;
    const { limits, now } = this.engine;
    const answeredAt = now();
    const isOver = answeredAt >= sentAt + validityMs(ttlMs, limits.marginMs);
    const { first } = this.#waiters;
    const canUse = !isOver && first?.request.ttlMs === ttlMs && first.canUse(grant.owner, hold);
    if (canUse && this.#mayBegin(first, grant, cameAt)) {
      this.#begin(first, grant, ttlMs, sentAt);
      return true;
    }
    // The lease is over if this process was paused, or the store took longer than the ttl.
    if (isOver && first?.remainingMs === 0) this.#refuse(first, answeredTooLate(this.key, ttlMs, answeredAt - sentAt));
    else if (first) this.#letGiveUp(first);
    return false;
  }

  #contended({ request, askedAt }: Attempt, refusal: Contended): void {
    const { owner, others, remainingMs, isKept, queued, smallerLimit } = refusal;
    const nobodyWon = remainingMs === undefined;
    if (this.#place && queued) this.#place = { ...this.#place, isTaken: true, hint: refusal.hint };
    if (smallerLimit !== undefined) this.engine.noteLimits(this.key, request.hold, smallerLimit);
    const answeredAt = this.engine.now();
    this.#seen = { owner, others, endsAt: nobodyWon ? undefined : answeredAt + remainingMs, isKept };
    this.engine.noteContested(this.key);
    this.#refuseTriers();
    const { first } = this.#waiters;
    if (first && first.closing.phase !== 'open') this.#refuse(first, closed(this.key));
    else if (first) this.#letGiveUp(first);
    if (this.#waiters.size === 0) return this.#stopAsking();
    const { waitQueue } = this.engine.backend;
    if (waitQueue && !waitQueue.isListening(this.key)) waitQueue.listen(this.key, this.engine);
    // The line takes its place at once, even before messages arrive: if it paused first, calls for another mode would overtake it.
    const needsPlace = waitQueue !== undefined && !this.#place && !nobodyWon;
    if (this.#isWoken || needsPlace) this.#ask();
    else this.#wait(refusal, askedAt, answeredAt);
  }

  /** Refuses the calls that waited for a failed attempt. With one attempt for each call, the calls would fail one after the other. */
  #unavailable({ askedAt }: Attempt, causes: readonly NodeError[]): void {
    this.#leavePlace();
    for (const waiter of this.#waiters.filter(({ startedAt }) => startedAt <= askedAt))
      this.#refuse(waiter, LockUnavailableError.from('acquired', this.key, causes));
    if (this.#waiters.size > 0) this.#ask();
    else this.#stopAsking();
  }

  /** Waits for a message, the end of a pause, or the next check. */
  #wait({ queued, remainingMs }: Contended, askedAt: number, answeredAt: number): void {
    const { backend, now, pacer } = this.engine;
    if (remainingMs === undefined) {
      this.#state = 'resting';
      return this.#pause(pauseAfterTieMs(answeredAt - askedAt));
    }
    this.#state = 'queued';
    const isListening = queued && backend.waitQueue?.isListening(this.key);
    if (!isListening) return this.#pause((this.#backOff ??= new BackOff(backend.pollEveryMs)).next(remainingMs));
    // Most leases end later than the next check: a back-off for each line would use memory.
    const expiredMs =
      remainingMs < CHECK_MS
        ? (this.#backOff ??= new BackOff(backend.pollEveryMs)).untilExpiredMs(remainingMs)
        : CHECK_MS;
    if (expiredMs < CHECK_MS) this.#pause(expiredMs);
    else pacer.add(this, now() + CHECK_MS, CHECK_MS);
  }

  #pause(ms: number): void {
    this.#timer = setTimeout(Line.#pauseIsOver, ms, this);
  }

  // One function for all lines: a closure for each line would use memory while it waits.
  static readonly #pauseIsOver = (line: Line): void => line.engine.pacer.hurry([line]);

  /** Its pause is over, its check is due, or its attempt is slow. */
  onDue(): void {
    const { first } = this.#waiters;
    if (this.#state !== 'asking') this.#ask();
    else if (first) this.#letGiveUp(first);
  }

  /** Until now, messages did not arrive. @returns whether the line waits for one, and so has to ask */
  noteMissedMessages(): boolean {
    if (!this.#place) return false;
    this.#isWoken = true;
    return this.#state === 'queued';
  }

  /** Its turn may have come. @param handOver the lock, handed over to its place */
  onTurn(handOver?: HandOver): void {
    this.#isWoken = true; // for the answer in flight
    if (this.#state !== 'queued') return;
    if (!handOver || !this.#beginWith(handOver)) this.#ask();
  }

  /**
   * Begins with a handed-over lock, while its lease is extended: docs/adr/0018-begin-with-the-grant.md. It asks instead
   * if nothing extends the lease of the call, if too little time remains, or if the backend cannot vouch for the grant.
   * @returns whether it has used the grant, or given it back
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
    const remainingMs = Math.min(grantLeftMs, validityMs(ttlMs, limits.marginMs));
    if (remainingMs < handOver.ttlMs * MIN_REMAINING_FRACTION) return false;
    this.#becomeIdle();
    this.#endStale();
    // The first call of a waiting line can use its place, and so it can use the grant.
    const mayBegin = this.#mayBegin(first, grant, place.arrivedAt);
    if (mayBegin) this.#begin(first, grant, handOver.ttlMs, sentAt, ttlMs);
    this.#goOn(mayBegin ? undefined : { grant, released: ignore });
    return true;
  }

  /** Whether the first call may have a grant: other processes may have calls that came before it. */
  #mayBegin({ arrivedAt }: Waiter, { nobodyBefore = -Infinity }: Grant, cameAt: number): boolean {
    const { now, order } = this.engine;
    return order.mayServe({ nobodyBefore: Math.max(nobodyBefore, cameAt), until: Infinity }, arrivedAt, now());
  }

  #begin(first: Waiter, grant: Grant, ttlMs: number, sentAt: number, extendTo?: number): void {
    const { leases, limits, now } = this.engine;
    const { fencingToken, lastToken = fencingToken, nobodyBefore } = grant;
    const { label, request } = first;
    const terms = { grant, fencingToken, ttlMs, sentAt, autoExtend: request.watchdog, extendTo, label };
    const lease = leases.begin(this, terms);
    const hasTokens = this.mode === 'exclusive';
    const turnsLeft = hasTokens ? (lastToken ?? 0) - (fencingToken ?? 0) : COHORT_PASSES;
    if (turnsLeft > 0 && request.cohort !== false) {
      const nextToken = hasTokens ? fencingToken! + 1 : undefined;
      lease.cohort = { nextToken, turnsLeft, nobodyBefore, until: now() + limits.cohortMs };
    }
    this.#grant(first, lease, extendTo !== undefined || this.#seen ? 'waited' : 'free');
    this.#refuseTriers();
  }

  #grant(waiter: Waiter, lease: Lease, how: LockGrant): void {
    this.#waiters.remove(waiter);
    if (this.#seen?.owner !== undefined) this.engine.noteContested(this.key); // noted again: the refusal may have been long ago
    if (this.#state === 'idle') this.#seen = undefined; // a line that asks for more permits still competes with the other holders
    this.#leases.add(lease);
    waiter.grant(lease, how);
  }

  /**
   * The holder of a lease is done: passes the lock on to the next call of this process. Calls that can share a shared lock have joined it
   * earlier.
   * @returns false when no call may have it: then the caller has to call `giveBack`
   */
  passOn(lease: Lease): boolean {
    const next = this.#waiters.first;
    if (!next || this.mode === 'shared' || !this.#canPassOn(lease, next)) return false;
    const cohort = lease.cohort!;
    const { nextToken } = cohort;
    cohort.turnsLeft--;
    if (nextToken !== undefined) cohort.nextToken = nextToken + 1;
    this.#leases.remove(lease);
    const passed = lease.passOn(nextToken, next.label);
    this.engine.leases.watch(passed);
    this.#grant(next, passed, 'passed');
    if (this.#state !== 'idle') this.#goOn(); // it asks for more permits, and perhaps no call wants them any more
    return true;
  }

  /** Whether a call may take over, or share, the lease of another call: only if it wants to hold the lock in the same way. */
  #canPassOn(lease: Lease, waiter: Waiter): boolean {
    const { request, arrivedAt } = waiter;
    const { cohort, grant } = lease;
    if (!cohort || request.cohort === false || !request.watchdog || request.ttlMs !== lease.ttlMs) return false;
    const now = this.engine.now();
    if (!waiter.canUse(grant.owner, grant.hold) || !lease.canBePassedOn(now)) return false;
    return this.engine.order.mayServe(cohort, arrivedAt, now);
  }

  /** Gives the lock of a lease back to the store. */
  giveBack(lease: Lease, released: Released): void {
    const { grant } = lease;
    const { keptUntil } = lease.demands;
    this.#leases.remove(lease);
    this.#noteHeldUntilNow();
    if (this.#waiters.first && leftMs(keptUntil) === 0) return this.#goOn({ grant, released });
    this.engine.backend.release(grant, { keepUntil: keptUntil }, released);
    this.#goOn();
  }

  /** A lease was lost, detached or downgraded. Called once for each, but not within the call that found it lost. */
  onLeaseGone(lease: Lease): void {
    if (!this.#leases.remove(lease)) return;
    this.#noteHeldUntilNow();
    this.#goOn();
  }

  /** Notes for the waiting calls that the lock was held until now. Its next holder is not known yet. */
  #noteHeldUntilNow(): void {
    if (this.#waiters.first && (this.mode === 'exclusive' || !this.#seen)) this.#seen = {};
  }

  /** Takes on a lock that a call of this process has adopted or downgraded. Waiting calls came earlier, and keep their place. */
  adopt(lease: Lease): void {
    this.#endStale();
    this.#leases.add(lease);
    if (this.mode === 'exclusive') return;
    const { limits, now } = this.engine;
    // The time limit of one call must not end the lock of others.
    if (lease.demands.overstaysAt === Infinity)
      lease.cohort = { turnsLeft: COHORT_PASSES, until: now() + limits.cohortMs };
    this.#goOn();
  }

  /** Ends an adopted lease, even if it seems to be held: the store has granted the lock again, so the lease has ended there. */
  #endStale(): void {
    const { first } = this.#leases;
    if (this.mode !== 'exclusive' || !first) return;
    this.#leases.remove(first);
    queueMicrotask(() => first.lose('expired')); // a listener of its signal may have calls of this line give up
  }

  /** Another process may have taken the lock from this owner by force: asks the store, and passes nothing on until then. */
  onTaken(owner: string): void {
    const lease = this.#leases.find(owner);
    if (!lease) return;
    lease.cohort = undefined;
    this.engine.leases.check(lease);
  }

  /** Lets waiting calls share a granted lease. */
  #letJoin(): void {
    for (let next = this.#waiters.first; next; next = this.#waiters.first) {
      const lease = this.#sharedWith(next);
      if (!lease) return;
      this.#waiters.remove(next);
      this.#share(lease, next);
    }
  }

  /** The lease of this process that a call can share. A lease that nothing extends would end too early for this call. */
  #sharedWith(waiter: Waiter): Lease | undefined {
    const lease = this.mode === 'shared' ? this.#leases.last : undefined;
    return lease?.autoExtend && lease.checkHeld() && this.#canPassOn(lease, waiter) ? lease : undefined;
  }

  #share(lease: Lease, waiter: Waiter): void {
    lease.demands.join(waiter.request.ttlMs);
    waiter.grant(lease, 'passed');
  }

  /** Lets a call give up when its time is over, or its signal aborts. */
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

  // One function for all waiters: a closure for each of them would use memory while it waits.
  // After a pause of this process, timers run before answers: answers that arrived meanwhile must be read before it refuses the call.
  static readonly #timeIsOver = (line: Line, waiter: Waiter): void =>
    void setImmediate(() => {
      if (!waiter.isSettled) line.#giveUp(waiter, timedOut(waiter, line.#known));
    });

  #giveUp(waiter: Waiter, reason: unknown): void {
    this.#refuse(waiter, reason);
    this.#goOn();
  }

  /** Refuses the calls that may not wait any more. A call that asks for a lock that may be free does not wait yet. */
  refuseWaiting(closing: Closing): void {
    const asking = this.#mayBeFree && this.#state !== 'idle' ? this.#waiters.first : undefined;
    for (const waiter of this.#waiters.filter((each) => each.closing === closing && each !== asking))
      this.#giveUp(waiter, closed(this.key));
  }

  /** Refuses the calls that try only once: others came before them. */
  #refuseTriers(): void {
    if (this.#waiters.triers === 0 || this.#mayBeFree) return;
    for (const waiter of this.#waiters.filter(({ triesOnce }) => triesOnce))
      this.#refuse(waiter, timedOut(waiter, this.#known));
  }

  #refuse(waiter: Waiter, reason: unknown): void {
    if (!waiter.list) return; // a lost lock has made it give up, or it is being granted
    this.#waiters.remove(waiter);
    waiter.refuse(reason);
  }

  get #known(): Knowledge {
    const { backend, now } = this.engine;
    // `checkAlive` may find the lease lost before `onLeaseGone` is called: then the lock was held until now.
    const own = this.#isHeldHere ? this.#leases.first : undefined;
    const lease = own?.checkAlive() ? own : undefined;
    const seen = this.#seen ?? (own ? {} : undefined);
    return { key: this.key, lease, seen, now: now(), backend };
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.engine.pacer.remove(this);
  }

  /** No waiting call is left. */
  #stopAsking(): void {
    this.#leavePlace();
    this.#becomeIdle();
  }

  /** It has the lock that it asked for, or no call wants it any more. */
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
}

/** Ignores the outcome of a release, which the backend repeats. */
function ignore(): void {}
