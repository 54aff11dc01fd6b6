import type { Subject } from 'rxjs';
import {
  type CallsBehind,
  type ExtendOutcome,
  type Grant,
  type GuardStatement,
  type LockBackend,
  type ReleaseOutcome,
} from '../backend/lock-backend.js';
import { LockUnavailableError, type LockLostReason, type NodeError } from '../../api/errors.js';
import type { HeldAs, LockEvent } from '../../api/events.js';
import { quoted } from '../../api/printable.js';
import { Labels } from '../keys/labels.js';
import { checkTtl } from '../options/call-options.js';
import { setImmediate } from '../time/event-loop.js';
import { leftMs, monotonic, validityMs } from '../time/clock.js';
import { LinkedList } from '../time/linked-list.js';
import { Pacer } from '../time/pacer.js';
import type { Line } from './line.js';
import { heldAs, Lease, type LeaseTerms } from './lease.js';
import { lostBefore } from './refusals.js';

/** A lease is first extended after this part of its ttl, so that two more tries fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
/**
 * By up to this part the first try is earlier, in each process by another: processes whose leases were extended at the same
 * moment, as after an outage, drift apart. Never later, so that a loss is noticed within a third of the ttl.
 */
const JITTER = 1 / 10;
/** The first try for a lease of which `marginMs` takes a large part, as a part of the rest. */
const EXTEND_AFTER_AT_MOST = 1 / 2;
/** The next try after a failed one, as a part of the lease. */
const RETRY_AFTER = 1 / 10;
/** For this part of its ttl the store shows how many calls wait behind a lease: a little longer than until the next extension. */
const SHOWN_FOR = 1 / 2;
/** Leases that come due within this part of their ttl are extended along. */
const COALESCE = 1 / 15;
/** A lease that has been due for this part of it is extended without a pause. */
const HURRY_AFTER = 1 / 10;
/** A timer this late, as a part of the lease, says that the process did not run. */
const STALLED_AFTER = 1 / 10;
/** How many leases are extended at once. */
export const EXTENSIONS_AT_ONCE = 300;

/** The needs of all leases of a service. */
export interface LeasesOptions {
  readonly backend: LockBackend;
  readonly marginMs: number;
  readonly now: () => number;
  readonly events: Subject<LockEvent>;
}

/** The wish of a call that the store keep a lock for at least so long, however its work ends. */
export interface Keeping {
  readonly key: string;
  /** Settles when the store has confirmed it. Rejects with LockUnavailableError. */
  readonly confirmed: Promise<void>;
  /** @throws LockUnavailableError when the lock was lost, perhaps after it was confirmed and while others of a set were not */
  assertHeld(): void;
  /** The call goes on with its lock: it is kept. */
  keep(): void;
  /** The call has ended, confirmed or not: the lock stands for no longer than without it. */
  giveUp(): void;
}

/** The fields of an event that identify a lease. */
interface LeaseIdentity extends Readonly<HeldAs> {
  readonly key: string;
  readonly label: string;
  readonly owner: string;
  readonly fencingToken?: number;
}

/** All leases of one service. */
export class Leases {
  readonly marginMs: number;
  readonly now: () => number;
  readonly labels = new Labels();
  /** Grants that may have been taken by force, as a message or a call says: if the store does not have one any more, that is why. */
  readonly suspectedForced = new WeakSet<Grant>();
  /** Set where extensions are observed. */
  onExtension?: (lease: Lease, status: ExtendOutcome['status'], tookMs: number) => void;
  readonly #backend: LockBackend;
  readonly #events: Subject<LockEvent>;
  /** The watchdog: all leases until they end, each due when it should be extended, or ends. */
  readonly #watchdog: Pacer<Lease>;
  /** The same part of the ttl for all leases of this process, so that those of one ttl come due in order. */
  readonly #extendAfter = EXTEND_AFTER * (1 - JITTER * Math.random());
  /** Leases whose loss was found, and not acted on yet. */
  readonly #found = new Set<Lease>();
  /** Leases that are released once they have ended in the store, too. */
  readonly #afterwards = new Map<Lease, NodeJS.Timeout>();
  /** Leases whose release is not answered yet. */
  readonly #givingBack = new LinkedList<Lease>();
  #whenIdle?: () => void;
  /** Leases whose handles are garbage: nobody can release them any more, so nobody waits for that. */
  readonly #abandoned = new Set<Lease>();
  #isClosing = false;

  constructor({ backend, marginMs, now, events }: LeasesOptions) {
    this.#backend = backend;
    this.marginMs = marginMs;
    this.now = now;
    this.#events = events;
    this.#watchdog = new Pacer<Lease>({
      now,
      atOnce: EXTENSIONS_AT_ONCE,
      leewayMs: (lease) => (lease.dueAt < lease.endsAt ? lengthMs(lease) * COALESCE : 0), // others end when they are due
      isUrgent: (lease, at) => at >= lease.endsAt || at - lease.dueAt > lengthMs(lease) * HURRY_AFTER,
      onDue: (lease) => this.#onDue(lease),
    });
  }

  /** Whether what the backend is asked is sent only when the present turn of the event loop is over. */
  get sendsLater(): boolean {
    return this.#backend.sendsLater === true;
  }

  /** How much it keeps: nothing unless keys are held, or were lost a moment ago. */
  get size(): number {
    return this.#watchdog.size + this.#afterwards.size;
  }

  /** Whether nothing is held. */
  get isIdle(): boolean {
    return this.#watchdog.size === this.#abandoned.size;
  }

  /** Begins a lease of a line with a grant. */
  add(line: Line, terms: LeaseTerms): Lease {
    const lease = new Lease(terms, line, this);
    // Whether a lease that is extended is over by now is seen later: the caller must get to know the lease first.
    if (terms.extendTo !== undefined) this.#extend(lease);
    else this.watch(lease);
    return lease;
  }

  /** Begins the lease of the next call of this process, with the grant of one that was released. */
  pass(lease: Lease, fencingToken: number | undefined): Lease {
    const next = lease.passedOn(fencingToken);
    this.watch(next);
    return next;
  }

  /**
   * Extends a lease now, on request of one of the calls that hold it; later extensions use the longest ttl that one of them asks for.
   * @param ask called just before it is sent: the call asks for this ttl from now on
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async extend(
    lease: Lease,
    ttlMs: number,
    ask: () => void = () => lease.demands.askInstead(lease.demands.longestTtlMs, ttlMs),
  ): Promise<void> {
    checkTtl(ttlMs, this.marginMs, this.#backend.bounds);
    const outcome = await this.#extendNow(lease, ask);
    if (outcome.status === 'lost' || !lease.checkHeld()) throw lease.lostError();
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', lease.key, outcome.causes);
  }

  /** Extends a lease by its ttl, and has the store keep the lock for at least `holdMs`, even if this process dies. */
  keep(lease: Lease, holdMs: number): Keeping {
    const { key, demands } = lease;
    const assertHeld = () => {
      if (!lease.checkHeld()) throw lostBefore('it could be kept', lease, 'kept');
    };
    if (lease.checkHeld() && demands.keptForMs >= holdMs) return { key, assertHeld, ...KEPT_ALREADY }; // by a call around this one
    const until = monotonic() + holdMs;
    demands.askToKeep(until); // before others extend it, while this call waits for its other locks
    return {
      key,
      assertHeld,
      confirmed: this.#confirmed(lease),
      keep: () => demands.keep(until),
      giveUp: () => {
        demands.giveUpKeeping(until);
        void this.#shorten(lease);
      },
    };
  }

  /** A call may hold a lease until then, by the clock: after that it is lost, and ends by itself. */
  limit(lease: Lease, until: number): void {
    lease.demands.limit(until);
    if (lease.checkAlive() && until < lease.dueAt) this.watch(lease);
  }

  /** A call with `maxHoldMs` has ended; other calls still hold the lease. */
  liftLimit(lease: Lease, until: number): void {
    if (!lease.checkAlive()) return;
    lease.demands.liftLimit(until);
    if (lease.dueAt === until) this.watch(lease);
  }

  /** As of `LockBackend`; undefined where the store cannot. What is said of the leases comes before the transaction can use it. */
  guard(leases: readonly Lease[], passedOnForMs: number): GuardStatement | undefined {
    if (!this.#backend.guard) return undefined;
    for (const lease of leases) lease.isGuarded = true;
    const grants = leases.map(({ grant }) => grant);
    return this.#backend.guard(grants, passedOnForMs);
  }

  /** It may have been taken by force: finds out, if that can be done without changing when it ends. */
  check(lease: Lease): void {
    this.suspectedForced.add(lease.grant);
    if (!lease.autoExtend) return;
    void this.#extendNow(lease).then(({ status }) => {
      if (status === 'extended') this.suspectedForced.delete(lease.grant); // this one was sent after it was said
    });
  }

  /**
   * Releases one handle; the last one releases the lock. A release that fails now is retried by the backend.
   * @param ttlMs the ttl that its call asks for
   */
  release(lease: Lease, ttlMs = lease.demands.longestTtlMs): Promise<boolean> {
    const isHeld = lease.checkHeld();
    if (!isHeld && lease.checkAlive()) return lease.untilAnswered().then(() => this.release(lease, ttlMs));
    if (lease.demands.calls > 1) {
      lease.demands.leave(ttlMs);
      if (lease.standsTooLong) void this.#shorten(lease);
      return Promise.resolve(isHeld);
    }
    if (!isHeld) return this.#workEnded(lease);
    // In this order and at once: no extension is sent, and no waiter let in, behind the release.
    this.#unwatch(lease);
    lease.release();
    const heldMs = this.heldMs(lease);
    const givenBack = lease.line.passOn(lease) ? undefined : this.#giveBack(lease, heldMs);
    this.#reportIdle();
    if (givenBack) return givenBack;
    this.#reportReleased(lease, heldMs);
    return RELEASED;
  }

  /** The lock of this lease has another holder now. */
  left(lease: Lease): void {
    this.#unwatch(lease);
    lease.release();
    lease.line.left(lease);
    this.#reportIdle();
  }

  /**
   * A handle is garbage, and was not released: nobody can do that any more. Unless other calls hold the lease, it is extended no more, and ends
   * by itself, as the work may still run.
   * @param ttlMs as of `release`
   */
  abandon(lease: Lease, ttlMs: number): void {
    if (!lease.checkAlive()) return;
    const { key } = lease;
    const message =
      `Lock ${quoted(key)} was never released, and its handle is gone. It is extended no more, and ends by itself. Release each lock ` +
      'in a finally, or use withLock.';
    this.#events.next({ type: 'warning', key, message });
    if (lease.demands.calls > 1) {
      void this.release(lease, ttlMs);
      return;
    }
    lease.autoExtend = false;
    this.#abandoned.add(lease);
    this.watch(lease);
    this.#reportIdle();
  }

  /** Whether a lease of this owner value has ended that may not have ended in the store: its work, or its release, may count on that. */
  runsOn(owner: string): boolean {
    const isOf = ({ grant }: Lease) => grant.owner === owner;
    return [...this.#afterwards.keys()].some(isOf) || this.#givingBack.filter(isOf).length > 0;
  }

  /** Aborts when the application begins to close. */
  closing(lease: Lease): AbortSignal {
    if (this.#isClosing && !lease.closing.aborted) lease.askToEnd(); // it began to close when this was not held
    return lease.closing;
  }

  /** The application begins to close: asks the work under all that is held to end. */
  askToEnd(): void {
    this.settle();
    this.#isClosing = true;
    for (const lease of this.#watchdog.items) lease.askToEnd();
  }

  /** Waits until nothing is held any more. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
      this.#reportIdle();
    });
  }

  /** Reports that the application waits for the locks that are held, for `timeoutMs` at most. */
  announceWait(timeoutMs: number): void {
    this.settle();
    for (const lease of this.#watchdog.items.filter((each) => !this.#abandoned.has(each)))
      this.#events.next({ type: 'closing', timeoutMs, ...this.identity(lease) });
  }

  /** Ends all leases: locks that are still held are lost to the shutdown. */
  end(): void {
    for (const lease of this.#watchdog.items) lease.lose('shutdown');
    this.settle();
    for (const [lease, timer] of this.#afterwards) {
      clearTimeout(timer);
      // One that was held for too long ends by itself: its work may still run, and nothing waits for that.
      if (lease.lostReason !== 'overstayed')
        this.#backend.release(lease.grant, { keepUntil: lease.demands.keptUntil }, ignore);
    }
    this.#afterwards.clear();
    this.#watchdog.stop();
  }

  /**
   * The one place where the loss of leases has consequences. It runs soon after a loss was found, and before another call
   * asks for a lock, or the application closes.
   */
  settle(): void {
    for (const lease of this.#found) {
      this.#found.delete(lease);
      this.#unwatch(lease);
      const reason = lease.lostReason;
      const heldMs = this.heldMs(lease);
      if (reason === 'shutdown') this.#backend.release(lease.grant, { keepUntil: lease.demands.keptUntil }, ignore);
      else if (reason !== 'stolen') this.#releaseAfterwards(lease);
      lease.line.left(lease);
      this.#reportIdle();
      this.#events.next({ type: 'lost', reason, heldMs, ...this.identity(lease) });
    }
  }

  /** The fields of an event that identify a lease. */
  identity({ key, label = this.labels.of(key), grant, fencingToken }: Lease): LeaseIdentity {
    return { key, label, owner: grant.owner, fencingToken, ...heldAs(grant.hold) };
  }

  /** Calls with the label of each lease. */
  eachLabel(call: (label: string, lease: Lease) => void): void {
    this.settle();
    for (const lease of this.#watchdog.items) call(lease.label ?? this.labels.of(lease.key), lease);
  }

  /** Called by the lease. */
  expiryReason(lease: Lease): LockLostReason {
    if (lease.demands.overstaysAt <= lease.deadline) return 'overstayed';
    if (!lease.autoExtend) return 'expired';
    return this.#watchdog.lateMs > lengthMs(lease) * STALLED_AFTER ? 'stalled' : 'unavailable';
  }

  /** Called by the lease: whatever asked it goes on first. */
  onLossDetected(lease: Lease): void {
    this.#found.add(lease);
    void SOON.then(() => this.settle()); // one for each, so that a listener that throws holds up no other loss
  }

  /** Watches a lease: it is due when it should be extended, or ends. */
  watch(lease: Lease): void {
    const { ttlMs, sentAt, endsAt } = lease;
    const extendAt = sentAt + Math.min(ttlMs * this.#extendAfter, lengthMs(lease) * EXTEND_AFTER_AT_MOST);
    // Those that end before they are extended come due at another time than others of their ttl.
    if (lease.isExtending) this.#watchdog.add(lease, endsAt);
    else if (lease.autoExtend && extendAt < endsAt) this.#watchdog.add(lease, extendAt, ttlMs);
    else this.#watchdog.add(lease, endsAt, -ttlMs);
  }

  /** A lease is to be extended, or its time is over. */
  #onDue(lease: Lease): void {
    const state = lease.checkState();
    if (state === 'held') this.#extend(lease);
    else if (state === 'unknown') this.#loseUnlessAnswered(lease);
    else if (state === 'lost') this.#unwatch(lease);
  }

  #behind(lease: Lease): CallsBehind | undefined {
    // Among those who wait is still the call that begins with a lock which was just handed over.
    const calls = lease.provisionalTtlMs === undefined ? lease.line.behind : 0;
    return calls === 0 ? undefined : { calls, forMs: Math.ceil(lease.ttlMs * SHOWN_FOR) };
  }

  /** @throws LockUnavailableError */
  async #confirmed(lease: Lease): Promise<void> {
    const outcome = await this.#extendNow(lease);
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('kept', lease.key, outcome.causes);
    if (outcome.status === 'lost' || !lease.checkHeld()) throw lostBefore('it could be kept', lease, 'kept');
  }

  /** Extends a lease that stands for longer than anybody wants it, so that it does not. If that fails, the next extension does it. */
  async #shorten(lease: Lease): Promise<void> {
    while (lease.isExtending) await lease.untilAnswered();
    if (lease.checkHeld() && lease.standsTooLong) this.#extend(lease);
  }

  /** @param ask called just before it is sent */
  async #extendNow(lease: Lease, ask: () => void = ignore): Promise<ExtendOutcome> {
    while (lease.isExtending) await lease.untilAnswered(); // one at a time: the last answer belongs to the last command
    if (!lease.checkHeld()) return ENDED;
    ask();
    return new Promise((resolve) => this.#extend(lease, resolve));
  }

  /** The lease counts on its ttl, which may be shorter than the time for which the store is to keep the lock. */
  #extend(lease: Lease, done: (outcome: ExtendOutcome) => void = ignore): void {
    const { keptAtMostUntil, longestTtlMs: ttlMs } = lease.demands;
    const extension = lease.beginExtension(ttlMs);
    if (!extension) {
      done(ENDED);
      return;
    }
    lease.notYetExtended?.onFirstExtension();
    lease.notYetExtended = undefined;
    this.watch(lease);
    const since = this.onExtension ? this.now() : 0;
    const request = {
      grant: lease.grant,
      ttlMs: Math.max(ttlMs, leftMs(keptAtMostUntil)),
      waiting: this.#behind(lease),
    };
    this.#backend.extend(request, (outcome) => {
      const { lease: answered, keptUntil } = extension;
      answered.answerCame();
      this.#extended(answered, outcome, keptUntil);
      this.onExtension?.(answered, outcome.status, this.now() - since);
      done(outcome);
    });
  }

  /** Handles the answer to an extension: ignored if the lease was released or lost meanwhile. */
  #extended(lease: Lease, outcome: ExtendOutcome, keptUntil: number): void {
    switch (outcome.status) {
      case 'extended':
        if (lease.extended(outcome.sentAt, keptUntil)) this.watch(lease);
        break;
      case 'lost':
        lease.lose(lease.isSuspectedForced ? 'forced' : outcome.reason);
        break;
      case 'unavailable':
        if (!lease.notExtended(outcome.causes[0])) return;
        if (lease.checkAlive()) this.watchFailed(lease); // its loss may have been acted on by what its signal aborted
        this.#events.next({ type: 'extension-failed', causes: outcome.causes, ...this.identity(lease) });
        break;
    }
  }

  /** Tries to extend a lease again soon, if it is extended at all. */
  watchFailed(lease: Lease): void {
    const retryAt = lease.autoExtend ? this.now() + lengthMs(lease) * RETRY_AFTER : Infinity;
    this.#watchdog.add(lease, Math.min(retryAt, lease.endsAt));
  }

  /** After a pause of this process timers come first: an extension that was answered meanwhile counts. */
  #loseUnlessAnswered(lease: Lease): void {
    const reason = this.expiryReason(lease);
    setImmediate(() => {
      if (lease.isExtending && lease.deadline <= this.now()) lease.lose(reason);
    });
  }

  /** @returns whether the store had the lock until now */
  #giveBack(lease: Lease, heldMs: number): Promise<boolean> {
    const { keptUntil } = lease.demands;
    this.#givingBack.push(lease);
    return new Promise((resolve) => {
      lease.line.giveBack(lease, (outcome) => {
        this.#givingBack.remove(lease);
        resolve(this.#released(lease, outcome, heldMs, keptUntil));
      });
    });
  }

  #released(lease: Lease, outcome: ReleaseOutcome, heldMs: number, keptUntil: number): boolean {
    switch (outcome.status) {
      case 'released':
        this.#reportReleased(lease, heldMs, keptUntil);
        return true;
      case 'gone':
        // Since when is unknown: the work may not have been alone.
        lease.markMissing();
        this.#events.next({ type: 'lost', reason: lease.lostReason, heldMs, ...this.identity(lease) });
        return false;
      case 'unavailable':
        this.#notReleased(lease, outcome.causes);
        return false;
    }
  }

  /** Most of all events: only for observers, and when it was said that the application waits for it. */
  #reportReleased(lease: Lease, heldMs: number, keptUntil = 0): void {
    if (this.#events.observed || this.#isClosing)
      this.#events.next({ type: 'released', heldMs, ...until(keptUntil), ...this.identity(lease) });
  }

  #notReleased(lease: Lease, causes: readonly NodeError[]): void {
    this.#events.next({ type: 'release-failed', causes, ...this.identity(lease) });
  }

  /**
   * The store may keep the key for longer than the lease ran here: an extension that was given up may still run, and a
   * clock that was set ahead ended the lease too early. One that was held for too long runs on, so that its work has that time
   * to end, while nobody else has the lock.
   */
  #releaseAfterwards(lease: Lease): void {
    const { ttlMs: keptTtlMs, provisionalTtlMs = keptTtlMs } = lease;
    const ttlMs = Math.min(provisionalTtlMs, keptTtlMs);
    const runsOnMs = lease.lostReason === 'overstayed' ? Math.max(0, lease.runsUntil - this.now()) : 0;
    const timer = setTimeout(
      () => {
        this.#afterwards.delete(lease);
        this.#backend.release(lease.grant, { keepUntil: lease.demands.keptUntil }, ignore);
      },
      runsOnMs + ttlMs - validityMs(ttlMs, this.marginMs),
    ).unref();
    this.#afterwards.set(lease, timer);
  }

  /**
   * The work under a lease that was lost has ended. If it had held that for too long, the lock is given back now, as it runs on for
   * nobody; any other loss has been acted on.
   * @returns whether the lock was given back
   */
  #workEnded(lease: Lease): Promise<boolean> {
    if (lease.lostReason !== 'overstayed') return NOT_RELEASED;
    this.settle(); // it may have been found lost in this very line
    const timer = this.#afterwards.get(lease);
    if (!timer) return NOT_RELEASED; // it has ended
    clearTimeout(timer);
    this.#afterwards.delete(lease);
    return new Promise((resolve) => {
      this.#backend.release(lease.grant, { keepUntil: lease.demands.keptUntil }, (outcome) => {
        if (outcome.status === 'unavailable') this.#notReleased(lease, outcome.causes);
        resolve(outcome.status === 'released');
      });
    });
  }

  heldMs({ begunAt }: Lease): number {
    return Math.round(this.now() - begunAt);
  }

  #unwatch(lease: Lease): void {
    this.#watchdog.remove(lease);
    this.#abandoned.delete(lease);
  }

  #reportIdle(): void {
    if (this.#whenIdle && this.isIdle) this.#whenIdle();
  }
}

const ENDED = { status: 'lost', reason: 'expired' } as const satisfies ExtendOutcome;
const KEPT_ALREADY: Omit<Keeping, 'key' | 'assertHeld'> = {
  confirmed: Promise.resolve(),
  keep: ignore,
  giveUp: ignore,
};
const RELEASED = Promise.resolve(true);
const NOT_RELEASED = Promise.resolve(false);
const SOON = Promise.resolve();

/** Ignores the outcome of a release, which the backend retries, or that of an extension. */
function ignore(): void {}

/** How long a lease is, in milliseconds: from when its command was sent to its deadline. */
function lengthMs({ sentAt, deadline }: Lease): number {
  return deadline - sentAt;
}

function until(keptUntil: number): { keptUntil?: Date } {
  const keptForMs = leftMs(keptUntil);
  return keptForMs > 0 ? { keptUntil: new Date(Date.now() + keptForMs) } : {};
}
