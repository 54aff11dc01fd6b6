import type {
  AcquireOutcome,
  AcquireRequest,
  Grant,
  HandOver,
  LockBackend,
  ReleaseOutcome,
} from '../backend/lock-backend.js';
import { LockUnavailableError, type NodeError } from '../../api/errors.js';
import type { LockGrant } from '../../api/events.js';
import type { Lease } from '../lease/lease.js';
import type { LeaseListener, Leases } from '../lease/leases.js';
import { validityMs } from '../time/clock.js';
import { setImmediate } from '../time/event-loop.js';
import type { InFlight } from '../time/in-flight.js';
import { onAbort } from './abort-listener.js';
import { CHECK_MS, type Check } from './checks.js';
import { Contender, Contenders, type ContendersListener } from './contender.js';
import { ContestedKeys } from './contested-keys.js';
import { answeredTooLate, closed, contended, timedOut, type HolderSeen, type Knowledge } from './refusals.js';
import { timeOf, WaiterList, type Closing, type Waiter } from './waiter.js';

/** A kind of lock: how many may want it, and hold it, together. */
export interface LockKind {
  /** How many contenders and leases of one key this process may have at a time; `Infinity`: one for each call. */
  readonly width: number;
  /** How many holders a key can have at a time, in all processes. */
  readonly capacity: number;
}

/** A lock with one holder. The calls of a process have one contender between them, and pass the lock on to each other. */
export const MUTEX: LockKind = { width: 1, capacity: 1 };
/** A lock with one holder, for which each call has a place of its own in the queue of the store. */
export const FAIR: LockKind = { width: Infinity, capacity: 1 };

/** The bounds of the waiting in one process. */
export interface QueueLimits {
  readonly marginMs: number;
  readonly maxWaiters: number;
  readonly cohortPasses: number;
  readonly cohortMs: number;
}

/** A grant that some holders of this process use in turn. */
interface Cohort {
  grant: Grant;
  nextToken: number;
  lastToken: number;
  endsAt: number;
}

const NONE = [] as const;

/** A lock that was handed over is begun with if it stands for this part of its time longer: enough to be extended. */
const BEGIN_WITH = 0.45;
/** A lock is passed on only in this first part of its lease: its next holder must not begin with a lease that ends. */
const PASSED_WITHIN = 1 / 3;

/** The queues of all keys that calls of this process want or hold. */
export class LockQueues implements ContendersListener<Waiter>, LeaseListener {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly kind: LockKind;
  readonly limits: QueueLimits;
  readonly leases: Pick<Leases, 'add' | 'check' | 'lose'>;
  /** Counts the attempts whose answer is still to come. */
  readonly inFlight: InFlight;
  /** @param key of a call that waits */
  readonly warn: (key: string, message: string) => void;
  readonly contenders: Contenders<Waiter>;
  /** Made when a call had to wait: an uncontended call passes by. */
  #contested?: ContestedKeys;
  readonly #queues = new Map<string, LockQueue>();

  constructor(
    parts: Pick<LockQueues, 'backend' | 'now' | 'kind' | 'limits' | 'leases' | 'inFlight' | 'warn'> & {
      nextOwner: () => string;
    },
  ) {
    this.backend = parts.backend;
    this.now = parts.now;
    this.kind = parts.kind;
    this.limits = parts.limits;
    this.leases = parts.leases;
    this.inFlight = parts.inFlight;
    this.warn = parts.warn;
    this.contenders = new Contenders(parts.backend, parts.now, parts.nextOwner, this, parts.kind.width > 1);
  }

  /** How much it keeps: nothing unless keys are held or waited for in this process. */
  get size(): number {
    return this.#queues.size + this.contenders.byTicket.size;
  }

  /** The leases of the key that this process holds. */
  leasesOf(key: string): readonly Lease[] {
    return this.#queues.get(key)?.leases ?? [];
  }

  /** How many calls of this process wait for the key. */
  waiting(key: string): number {
    return this.#queues.get(key)?.size ?? 0;
  }

  /** Calls back for each call that waits. */
  eachWaiter(call: (waiter: Waiter) => void): void {
    for (const queue of this.#queues.values()) queue.eachWaiter(call);
  }

  /** Whether a call of this process had to wait for the key a moment ago. */
  wasContested(key: string): boolean {
    return this.#contested !== undefined && this.#contested.has(key);
  }

  /** Called when another process holds the key, or held it until now. */
  noteContested(key: string): void {
    (this.#contested ??= new ContestedKeys(this.now)).note(key);
  }

  /** The waiter is granted a lease, or refused, sooner or later. */
  join(waiter: Waiter): void {
    const { key } = waiter;
    let queue = this.#queues.get(key);
    if (!queue) this.#queues.set(key, (queue = new LockQueue(key, this)));
    try {
      queue.join(waiter);
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
    return this.#queues.get(lease.key)!.giveBack(lease, done);
  }

  /** The lease was lost. */
  onLost(lease: Lease): void {
    this.#queues.get(lease.key)?.onLost(lease);
  }

  /** The closing has come to its next phase: refuses the calls that may not wait any more. */
  refuseWaiting(closing: Closing): void {
    for (const queue of [...this.#queues.values()]) queue.refuseWaiting(closing);
  }

  onTurn(ticket?: string): void {
    const { byTicket } = this.contenders;
    if (ticket !== undefined) this.#wake(byTicket.get(ticket));
    else this.contenders.checks.hurry([...byTicket.values()].filter((contender) => contender.wake()));
  }

  onListening(key: string): void {
    this.#queues.get(key)?.onListening();
  }

  onHandOver(ticket: string, handOver: HandOver): void {
    this.#wake(this.contenders.byTicket.get(ticket), handOver);
  }

  onDue(contender: Contender<Waiter>): void {
    this.#queues.get(contender.key)!.onDue(contender);
  }

  onTaken(key: string, owner: string): void {
    this.#queues.get(key)?.onTaken(owner);
  }

  onWarning(message: string): void {
    const keys = [...this.#queues.keys()];
    this.warn(keys.find((key) => this.waiting(key) > 0) ?? keys[0] ?? '', message);
  }

  /** Called by a queue of which nothing is wanted or held any more. */
  forget(key: string): void {
    this.#queues.delete(key);
  }

  #wake(contender: Contender<Waiter> | undefined, handOver?: HandOver): void {
    if (contender?.wake()) this.#queues.get(contender.key)!.onTurn(contender, handOver);
  }
}

/** Has one of the contenders for a key ask every second, so that the store hears of this process, and it of what was lost. */
class KeyCheck implements Check {
  list?: { remove(check: Check): void };
  next?: Check;
  previous?: Check;
  dueAt = 0;

  constructor(private readonly queue: LockQueue) {}

  onDue(): void {
    this.queue.check();
  }
}

/**
 * All calls of this process that want one lock, in the order of their arrival. As many contenders as the kind of the lock is
 * wide ask for it on behalf of the first waiters. A contender whose waiter gives up asks for the next waiter that has none.
 *
 * When the one contender of a mutex wins, the lock is passed on among the waiters for a while: lock cohorting (Dice, Marathe,
 * Shavit, PPoPP 2012).
 */
export class LockQueue {
  readonly #waiters = new WaiterList();
  /** How many contenders there are. */
  #contending = 0;
  /** How many of them have a waiter. */
  #served = 0;
  /** The contenders whose waiter gave up during their attempt, and that have no other. */
  #left: readonly Contender<Waiter>[] = NONE;
  /** Held in this process; most keys have one lease at a time, and a set of one is as small as can be. */
  #leases: readonly Lease[] = NONE;
  #cohort?: Cohort;
  /** Where there may be several contenders, and one has waited. */
  #check?: KeyCheck;
  #seen?: HolderSeen;

  constructor(
    private readonly key: string,
    private readonly queues: LockQueues,
  ) {}

  get leases(): readonly Lease[] {
    return this.#leases;
  }

  /** How many calls wait. */
  get size(): number {
    return this.#waiters.size;
  }

  eachWaiter(call: (waiter: Waiter) => void): void {
    for (let waiter = this.#waiters.first; waiter; waiter = waiter.next) call(waiter);
  }

  join(waiter: Waiter): void {
    const { backend, limits } = this.queues;
    const free = this.#free;
    if (free === 0 && waiter.triesOnce) {
      waiter.refuse(contended(waiter, this.#known));
      return;
    }
    // A call that asks for a lock that may be free does not wait yet.
    if (this.#waiters.size >= limits.maxWaiters + free) {
      waiter.refuse(contended(waiter, this.#known, limits.maxWaiters));
      return;
    }
    const asks = this.#mayContend;
    if (waiter.closing.phase !== 'open' && (free === 0 || !asks)) {
      waiter.refuse(closed(this.key));
      return;
    }
    this.#waiters.push(waiter);
    // Most calls are answered soon: one that asks at once gets its timer when that has taken as long as a check.
    const isLong = !waiter.wasRefused && timeOf(waiter.request, backend) >= CHECK_MS;
    if (!asks || !isLong || waiter.request.signal) this.#limit(waiter);
    if (waiter.isSettled) return;
    if (asks) this.#begin(waiter);
    else this.#takeOver(waiter);
  }

  /** Passes the lock on, or gives it back: its holder is done. @returns whether it was passed on */
  giveBack(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    this.#remove(lease);
    const next = this.#waiters.first;
    if (next && this.#canPassOn(lease, next)) {
      const { grant, ttlMs, sentAt } = lease;
      this.#grant(next, 'passed', grant, this.#cohort!.nextToken++, ttlMs, sentAt);
      return true;
    }
    this.queues.backend.release(lease.grant, done, lease.keptForMs);
    this.#noteTaken();
    this.#goOn();
    return false;
  }

  onLost(lease: Lease): void {
    if (!this.#remove(lease)) return;
    this.#noteTaken();
    this.#goOn();
  }

  /** Called when the lock may have been taken by force from this owner: asks the store, and passes nothing on until then. */
  onTaken(owner: string): void {
    for (const lease of this.#leases) {
      if (lease.grant.owner !== owner) continue;
      this.#cohort = undefined;
      this.queues.leases.check(lease);
      return;
    }
  }

  /** Calls that may not wait any more are refused. A call that asks for a lock that may be free does not wait yet. */
  refuseWaiting(closing: Closing): void {
    const mayBeFree = this.#free > 0;
    for (const waiter of this.#waiters.filter((each) => each.closing === closing && !(mayBeFree && each.contender)))
      this.#giveUp(waiter, closed(this.key));
  }

  /** Messages arrive from now on: the turn of a contender with a place may have come before. */
  onListening(): void {
    const contenders = this.#waiters.filter((each) => each.contender?.hasPlace ?? false).map((each) => each.contender!);
    this.queues.contenders.checks.hurry(contenders.filter((contender) => contender.wake()));
  }

  /** The turn of a contender that waits may have come. @param handOver the lock was handed over to it */
  onTurn(contender: Contender<Waiter>, handOver?: HandOver): void {
    const since = contender.handedOverSince;
    if (!handOver || since === undefined || !this.#beginWith(contender, handOver, since)) this.#ask(contender);
  }

  /** A contender that waits, or rests, is to ask again; one that asks has been doing so for a while. */
  onDue(contender: Contender<Waiter>): void {
    if (contender.isAsking) {
      if (contender.waiter) this.#limit(contender.waiter);
      return;
    }
    this.#ask(contender, this.queues.contenders.areMany && contender.waiter === this.#waiters.first);
  }

  /** Has the first contender that waits ask on behalf of all. */
  check(): void {
    let waiter = this.#waiters.first;
    while (waiter && !waiter.contender?.isWaiting) waiter = waiter.next;
    if (waiter) this.#ask(waiter.contender!, true);
  }

  /** @param isCheck it asks on behalf of the others, too, which asked longer ago */
  #ask(contender: Contender<Waiter>, isCheck = false): void {
    const { backend, inFlight, kind, limits, now } = this.queues;
    const waiter = contender.waiter!;
    if (this.#seen) this.#seen.askedAt ??= now();
    // An attempt that will probably win, or has no waiter behind it, does without a place, which costs arguments.
    const hasCompany = this.#seen !== undefined || this.#waiters.size > this.#served;
    const waits = hasCompany || (!waiter.triesOnce && this.queues.wasContested(this.key));
    const takesPlace = contender.hasPlace || (kind.width === Infinity ? !waiter.triesOnce : waits);
    const mayPass = kind.width === 1 && waiter.request.cohort !== false;
    const passes = mayPass ? Math.min(limits.cohortPasses, this.#waiters.size - 1) : 0;
    const request = contender.ask(waiter.request.ttlMs, takesPlace ? 1 + passes : undefined);
    if (!waiter.isLimited) this.queues.contenders.checks.add(contender, 'key');
    inFlight.begin();
    backend.acquire(request, (outcome) => {
      contender.answered(outcome);
      if (!contender.waiter) this.#left = without(this.#left, contender);
      this.#conclude(contender, request, outcome, isCheck);
      inFlight.end();
    });
  }

  /**
   * Begins with a lock that was handed over, while its lease is extended: docs/adr/0018-begin-with-the-grant.md. A grant is
   * confirmed first if it is for several holders in turn, or for one whose lease is not extended, when too little is left, and
   * when the store cannot have minted its token yet.
   * @returns whether it did
   */
  #beginWith(contender: Contender<Waiter>, handOver: HandOver, since: number): boolean {
    const waiter = contender.waiter!;
    const { kind, limits, now } = this.queues;
    const servesOne = kind.width > 1 || this.#waiters.size === 1;
    const { ttlMs, watchdog } = waiter.request;
    const grantLeftMs = since + validityMs(handOver.ttlMs, limits.marginMs) - now();
    const leftMs = Math.min(grantLeftMs, validityMs(ttlMs, limits.marginMs));
    if (!servesOne || !watchdog || leftMs < handOver.ttlMs * BEGIN_WITH) return false;
    const grant = handOver.grantOf(this.key, contender.latestToken);
    if (!grant) return false;
    contender.won();
    this.#drop(contender);
    this.#cohort = undefined;
    this.#grant(waiter, 'waited', grant, grant.fencingToken, handOver.ttlMs, since, ttlMs);
    this.#refuseTriers();
    return true;
  }

  #conclude(contender: Contender<Waiter>, request: AcquireRequest, outcome: AcquireOutcome, isCheck: boolean): void {
    const isLeft = !contender.waiter;
    switch (outcome.status) {
      case 'acquired':
        this.#acquired(contender, request, outcome);
        if (isCheck) this.check(); // who takes what was granted to it says nothing of the others
        break;
      case 'contended':
        this.#contended(contender, outcome);
        if (isCheck) this.#checkOthers(contender, outcome);
        break;
      case 'unavailable':
        this.#unavailable(contender, outcome.causes);
        if (!isCheck) break;
        // Nobody waited for its answer any more, so it may not even have been sent: that says nothing of the others.
        if (isLeft) this.check();
        else this.#hurryOthers(contender);
        break;
    }
    this.#goOn();
  }

  #acquired(
    contender: Contender<Waiter>,
    request: AcquireRequest,
    outcome: Extract<AcquireOutcome, { status: 'acquired' }>,
  ): void {
    const { grant, sentAt } = outcome;
    const { backend, limits, now } = this.queues;
    const { waiter } = contender;
    const answeredAt = now();
    const isOfUse = answeredAt < sentAt + validityMs(request.ttlMs, limits.marginMs);
    this.#drop(contender);
    if (isOfUse && waiter?.request.ttlMs === request.ttlMs) {
      this.#cohort = cohortOf(grant, answeredAt + limits.cohortMs);
      this.#grant(waiter, this.#seen ? 'waited' : 'free', grant, grant.fencingToken, request.ttlMs, sentAt);
      this.#refuseTriers();
      return;
    }
    // The waiter that it was for has given up, and the next one wants another ttl; or nothing is left of the lease: this
    // process was paused, or the store is slower than the ttl.
    backend.release(grant, () => {});
    if (!isOfUse && waiter?.remainingMs === 0)
      this.#refuse(waiter, answeredTooLate(this.key, request.ttlMs, answeredAt - sentAt));
    else if (waiter) this.#limit(waiter);
  }

  #contended(contender: Contender<Waiter>, refusal: Extract<AcquireOutcome, { status: 'contended' }>): void {
    const { owner, remainingMs, isKept } = refusal;
    const answeredAt = this.queues.now();
    this.#seen = { owner, endsAt: remainingMs === undefined ? undefined : answeredAt + remainingMs, isKept };
    this.queues.noteContested(this.key);
    this.#noteSign(refusal);
    this.#refuseTriers();
    const { waiter } = contender;
    if (waiter && waiter.closing.phase !== 'open') this.#refuse(waiter, closed(this.key));
    else if (waiter) this.#limit(waiter);
    if (!contender.waiter) {
      this.#end(contender);
      return;
    }
    const pauseMs = contender.pauseMs(refusal, answeredAt, contender.waiter === this.#waiters.first);
    if (pauseMs === undefined) this.#ask(contender);
    else contender.wait(pauseMs, remainingMs === undefined);
  }

  /** The store has heard of this process a moment ago: the key is checked a second later. */
  #noteSign({ queued }: { queued: boolean }): void {
    const { contenders } = this.queues;
    if (queued && contenders.areMany) contenders.checks.add((this.#check ??= new KeyCheck(this)), 'key');
  }

  /** Acts for the other contenders on what one has learned that asked on behalf of all. */
  #checkOthers(
    contender: Contender<Waiter>,
    { owner, placeWasLost }: { owner?: string; placeWasLost?: boolean },
  ): void {
    if (placeWasLost) {
      this.#hurryOthers(contender);
      return;
    }
    const granted = owner === undefined ? undefined : this.queues.contenders.byTicket.get(owner);
    if (granted !== contender && granted?.isWaiting) this.#ask(granted); // the message is late, or lost
  }

  /** Has all other contenders that wait ask soon. */
  #hurryOthers(contender: Contender<Waiter>): void {
    if (this.#contending < 2) return;
    const { checks } = this.queues.contenders;
    const waiting = this.#waiters.filter((each) => each.contender !== contender && !!each.contender?.isWaiting);
    checks.hurry(waiting.map((waiter) => waiter.contender!));
  }

  /** The waiters behind a failed attempt do not make the same one again, or a queue would fail one by one. */
  #unavailable(contender: Contender<Waiter>, causes: readonly NodeError[]): void {
    const failed = (waiter: Waiter) =>
      waiter.startedAt <= contender.attemptedAt && (!waiter.contender || waiter.contender === contender);
    for (const waiter of this.#waiters.filter(failed)) {
      this.#refuse(waiter, LockUnavailableError.from('acquired', this.key, causes));
    }
    if (contender.waiter) this.#ask(contender);
    else this.#end(contender);
  }

  #grant(
    waiter: Waiter,
    how: LockGrant,
    grant: Grant,
    fencingToken: number | undefined,
    ttlMs: number,
    sentAt: number,
    extendTo?: number,
  ): void {
    const { kind, leases } = this.queues;
    this.#waiters.remove(waiter);
    if (this.#seen?.owner !== undefined) this.queues.noteContested(this.key); // until now: the refusal may have been long ago
    this.#seen = undefined;
    // In fair mode the lock may have been taken from one lease before it was granted to the next.
    if (kind.capacity === 1 && this.#leases.length > 0) {
      const earlier = this.#leases;
      this.#leases = NONE;
      for (const each of earlier) leases.lose(each, 'stolen');
    }
    const lease = leases.add(grant, fencingToken, ttlMs, sentAt, waiter.request.watchdog, extendTo);
    lease.label = waiter.label;
    this.#leases = this.#leases.length === 0 ? [lease] : [...this.#leases, lease];
    waiter.grant(lease, how);
  }

  #refuse(waiter: Waiter, reason: unknown): void {
    if (!waiter.list) return; // a lock that was found lost meanwhile made it give up; or it is being granted
    const { contender } = waiter;
    this.#waiters.remove(waiter);
    waiter.refuse(reason);
    if (!contender) return;
    this.#part(contender);
    const next = this.#next;
    if (next) this.#join(contender, next);
    else if (contender.isPausing) this.#end(contender);
    else if (contender.isAsking) this.#left = this.#left.concat(contender);
  }

  #giveUp(waiter: Waiter, reason: unknown): void {
    this.#refuse(waiter, reason);
    this.#goOn();
  }

  /** Calls that try once have found others before them. */
  #refuseTriers(): void {
    if (this.#waiters.triers === 0 || this.#free > 0) return;
    for (const waiter of this.#waiters.filter(({ triesOnce }) => triesOnce))
      this.#refuse(waiter, timedOut(waiter, this.#known));
  }

  /** Lets a waiter give up when its time is over, or when its signal aborts. */
  #limit(waiter: Waiter): void {
    if (waiter.isLimited || waiter.isSettled) return;
    const { signal } = waiter.request;
    const remainingMs = Math.max(0, timeOf(waiter.request, this.queues.backend) - waiter.waitedMs);
    waiter.limitBy(
      setTimeout(LockQueue.#timeIsOver, Math.ceil(remainingMs), this, waiter),
      signal && onAbort(signal, () => this.#giveUp(waiter, signal.reason)),
    );
    if (signal?.aborted) this.#giveUp(waiter, signal.reason);
  }

  // One function for all queues, as a closure for each waiter is memory that lives as long as it waits.
  // After a pause of this process timers run first: answers that arrived meanwhile are read before the call is refused.
  static readonly #timeIsOver = (queue: LockQueue, waiter: Waiter): void =>
    void setImmediate(() => {
      if (!waiter.isSettled) queue.#giveUp(waiter, timedOut(waiter, queue.#known));
    });

  /** A lease that is not extended, or has another ttl, has to be one of its own; one that is kept, or was to be, stands longer. */
  #canPassOn(lease: Lease, { request }: Waiter): boolean {
    const { grant, ttlMs, sentAt, deadline, isUnsettled, askedForMs, standsTooLong } = lease;
    if (this.#cohort?.grant !== grant || request.cohort === false) return false;
    const { nextToken, lastToken, endsAt } = this.#cohort;
    const now = this.queues.now();
    if (nextToken > lastToken || now >= endsAt || isUnsettled || askedForMs > 0 || standsTooLong) return false;
    return request.watchdog && request.ttlMs === ttlMs && now < sentAt + (deadline - sentAt) * PASSED_WITHIN;
  }

  /** @returns whether it was held here */
  #remove(lease: Lease): boolean {
    const { length } = this.#leases;
    this.#leases = without(this.#leases, lease);
    return this.#leases.length < length;
  }

  /** How many locks of the key may be free, as far as is known. */
  get #free(): number {
    return this.#seen ? 0 : Math.max(0, this.queues.kind.capacity - this.#leases.length);
  }

  /** Whether there may be one contender more. */
  get #mayContend(): boolean {
    return this.#contending + this.#leases.length < this.queues.kind.width;
  }

  /** The first waiter that no contender asks for. */
  get #next(): Waiter | undefined {
    if (this.#waiters.size === this.#served) return undefined;
    let waiter = this.#waiters.first;
    while (waiter?.contender) waiter = waiter.next;
    return waiter;
  }

  #begin(waiter: Waiter): void {
    const contender = new Contender(this.key, this.queues.contenders);
    this.#contending++;
    this.#join(contender, waiter);
    this.#ask(contender);
  }

  /** Has the waiter asked for by a contender whose own waiter gave up during its attempt, if there is one. */
  #takeOver(waiter: Waiter): void {
    const [contender] = this.#left;
    if (!contender) return;
    this.#left = without(this.#left, contender);
    this.#join(contender, waiter);
  }

  #join(contender: Contender<Waiter>, waiter: Waiter): void {
    contender.waiter = waiter;
    waiter.contender = contender;
    this.#served++;
  }

  #part(contender: Contender<Waiter>): void {
    if (!contender.waiter) return;
    contender.waiter.contender = undefined;
    contender.waiter = undefined;
    this.#served--;
  }

  #end(contender: Contender<Waiter>): void {
    contender.withdraw();
    this.#drop(contender);
  }

  #drop(contender: Contender<Waiter>): void {
    this.#part(contender);
    this.#contending--;
    if (this.#contending === 0) this.#check?.list?.remove(this.#check);
    // Without a contender, nothing keeps the knowledge of other holders up to date.
    if (this.#contending === 0 && this.queues.kind.capacity > 1) this.#seen = undefined;
  }

  /** Notes for the waiters behind a holder of this process that the lock was held until now, whatever comes next. */
  #noteTaken(): void {
    if (this.#waiters.first) this.#seen = {};
  }

  /** Called when a waiter came or went: begins contenders for waiters that have none, as long as there are too few. */
  #goOn(): void {
    for (let next; this.#mayContend && (next = this.#next);) this.#begin(next);
    if (this.#waiters.size + this.#contending + this.#leases.length === 0) this.queues.forget(this.key);
  }

  get #known(): Knowledge {
    const { backend, now } = this.queues;
    const lease = this.#leases.find(({ isAlive }) => isAlive);
    // Asking may have found a lease lost of which `onLost` is still to come: the lock was held until now.
    const seen = this.#seen ?? (this.#leases.length > 0 ? {} : undefined);
    return { key: this.key, lease, seen, now: now(), backend };
  }
}

/** Undefined if nothing distinguishes holders in turn. */
function cohortOf(grant: Grant, endsAt: number): Cohort | undefined {
  const { fencingToken, lastToken = fencingToken } = grant;
  return fencingToken === undefined ? undefined : { grant, nextToken: fencingToken + 1, lastToken: lastToken!, endsAt };
}

function without<Item>(items: readonly Item[], gone: Item): readonly Item[] {
  return items.length === 1 && items[0] === gone ? NONE : items.filter((item) => item !== gone);
}
