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
import { leftMs, monotonic } from '../time/clock.js';
import { LinkedList } from '../time/linked-list.js';
import { Pacer } from '../time/pacer.js';
import { LateReleases } from './late-releases.js';
import type { Line } from './line.js';
import { heldAs, Lease, type LeaseTerms } from './lease.js';
import { lostBefore } from './refusals.js';

/** A lease is first extended after this fraction of its ttl, so that two more attempts fit in before the deadline. */
const EXTEND_AFTER = 1 / 3;
/**
 * The first attempt is earlier by up to this fraction of that time, in each process by a different one. So processes that extended their leases
 * at the same moment, for example after an outage, drift apart. It is never later, so that a loss is noticed within a third of the ttl.
 */
const JITTER = 1 / 10;
/** The latest first attempt, as a fraction of the lease: it matters if `marginMs` takes a large part of the ttl. */
const EXTEND_AFTER_AT_MOST = 1 / 2;
/** The pause after a failed attempt, as a fraction of the lease. */
const RETRY_AFTER = 1 / 10;
/** For this fraction of the ttl, the store shows how many calls wait for a lease: a little longer than until the next extension. */
const SHOWN_FOR = 1 / 2;
/** Leases that come due within this fraction of their length are extended together. */
const COALESCE = 1 / 15;
/** A lease that has been due for this fraction of its length is extended without a pause. */
const HURRY_AFTER = 1 / 10;
/** The process did not run if a timer is late by this fraction of the lease. */
const STALLED_AFTER = 1 / 10;
/** Maximum number of leases that are extended at once. */
export const EXTENSIONS_AT_ONCE = 300;

/** The needs of all leases of a service. */
export interface LeasesOptions {
  readonly backend: LockBackend;
  readonly marginMs: number;
  readonly now: () => number;
  readonly events: Subject<LockEvent>;
}

/** The `holdMs` of one call: the store keeps the lock for at least this time, however the work ends. */
export interface MinimumHold {
  readonly key: string;
  /** Settles when the store has confirmed it. Rejects with LockUnavailableError. */
  readonly confirmed: Promise<void>;
  /** @throws LockUnavailableError when the lock was lost, perhaps after the store had confirmed it */
  assertHeld(): void;
  /** The call goes on with its lock. */
  confirm(): void;
  /** The call is refused: it no longer prolongs the lock. */
  cancel(): void;
}

/** The fields of an event that identify a lease. */
interface LeaseIdentity extends Readonly<HeldAs> {
  readonly key: string;
  readonly label: string;
  readonly owner: string;
  readonly fencingToken?: number;
}

/**
 * All leases of one service. The methods follow the life of a lease: it begins, is extended in time, and is released, or lost. The last methods
 * serve single calls and the shutdown.
 */
export class Leases {
  readonly marginMs: number;
  readonly now: () => number;
  readonly labels = new Labels();
  /** Grants that another process may have taken by force, according to a message or a call. This is why the store may lack such a grant. */
  readonly suspectedForced = new WeakSet<Grant>();
  /** Set if extensions are observed. */
  onExtension?: (lease: Lease, status: ExtendOutcome['status'], tookMs: number) => void;
  readonly #backend: LockBackend;
  readonly #events: Subject<LockEvent>;
  /** The watchdog: all leases until they end. Each comes due for its extension, or at its end. */
  readonly #watchdog: Pacer<Lease>;
  /** The same fraction of the ttl for all leases of this process, so that leases with the same ttl come due in order. */
  readonly #extendAfter = EXTEND_AFTER * (1 - JITTER * Math.random());
  /** Leases whose loss was detected. `settle` does what follows. */
  readonly #lost = new Set<Lease>();
  readonly #lateReleases: LateReleases;
  /** Leases whose release is not answered yet. */
  readonly #releasing = new LinkedList<Lease>();
  /** Leases whose handles are garbage: nobody can release them any more, so the shutdown does not wait for them. */
  readonly #abandoned = new Set<Lease>();
  #onIdle?: () => void;
  #isClosing = false;

  constructor({ backend, marginMs, now, events }: LeasesOptions) {
    this.#backend = backend;
    this.marginMs = marginMs;
    this.now = now;
    this.#events = events;
    this.#lateReleases = new LateReleases(backend, marginMs, now);
    this.#watchdog = new Pacer<Lease>({
      now,
      atOnce: EXTENSIONS_AT_ONCE,
      leewayMs: (lease) => (lease.dueAt < lease.endsAt ? lengthMs(lease) * COALESCE : 0), // a lease is never ended early
      isUrgent: (lease, at) => at >= lease.endsAt || at - lease.dueAt > lengthMs(lease) * HURRY_AFTER,
      onDue: (lease) => this.#onDue(lease),
    });
  }

  /** How much it keeps in memory: nothing unless keys are held, or were lost a moment ago. */
  get size(): number {
    return this.#watchdog.size + this.#lateReleases.size;
  }

  /** Whether nothing is held. */
  get isIdle(): boolean {
    return this.#watchdog.size === this.#abandoned.size;
  }

  /** The fields of an event that identify a lease. */
  identity({ key, label = this.labels.of(key), grant, fencingToken }: Lease): LeaseIdentity {
    return { key, label, owner: grant.owner, fencingToken, ...heldAs(grant.hold) };
  }

  heldMs({ begunAt }: Lease): number {
    return Math.round(this.now() - begunAt);
  }

  eachLabel(call: (label: string, lease: Lease) => void): void {
    this.settle();
    for (const lease of this.#watchdog.items) call(lease.label ?? this.labels.of(lease.key), lease);
  }

  begin(line: Line, terms: LeaseTerms): Lease {
    const lease = new Lease(terms, line, this);
    if (terms.extendTo === undefined) this.watch(lease);
    else this.#extend(lease); // it may be over by now, but the caller must get the lease first
    return lease;
  }

  /** Watches a lease: it comes due for its extension, or at its end. */
  watch(lease: Lease): void {
    const { ttlMs, sentAt, endsAt } = lease;
    const extendAt = sentAt + Math.min(ttlMs * this.#extendAfter, lengthMs(lease) * EXTEND_AFTER_AT_MOST);
    // The third argument is a period: leases that end before they are extended come due in their own order.
    if (lease.isExtending) this.#watchdog.add(lease, endsAt);
    else if (lease.autoExtend && extendAt < endsAt) this.#watchdog.add(lease, extendAt, ttlMs);
    else this.#watchdog.add(lease, endsAt, -ttlMs);
  }

  /** Watches a lease whose extension has failed: it is due for the next attempt, if the watchdog extends it at all. */
  watchFailed(lease: Lease): void {
    const retryAt = lease.autoExtend ? this.now() + lengthMs(lease) * RETRY_AFTER : Infinity;
    this.#watchdog.add(lease, Math.min(retryAt, lease.endsAt));
  }

  /** A lease is due for extension, or its time is over. */
  #onDue(lease: Lease): void {
    const state = lease.checkState();
    if (state === 'held') this.#extend(lease);
    else if (state === 'unknown') this.#loseUnlessAnswered(lease);
    else if (state === 'lost') this.#unwatch(lease);
  }

  /** After a pause of this process, timers run before answers: an extension that was answered meanwhile still counts. */
  #loseUnlessAnswered(lease: Lease): void {
    const reason = this.expiryReason(lease);
    setImmediate(() => {
      if (lease.isExtending && lease.deadline <= this.now()) lease.lose(reason);
    });
  }

  /**
   * Sends an extension. The lease counts on its ttl, which may be shorter than the time for which the store keeps the lock.
   */
  #extend(lease: Lease, done: (outcome: ExtendOutcome) => void = ignore): void {
    const { keptAtMostUntil, longestTtlMs: ttlMs } = lease.demands;
    const extension = lease.beginExtension(ttlMs);
    if (!extension) {
      done(ENDED);
      return;
    }
    lease.unregistered?.register();
    lease.unregistered = undefined;
    this.watch(lease);
    const since = this.onExtension ? this.now() : 0;
    const request = {
      grant: lease.grant,
      ttlMs: Math.max(ttlMs, leftMs(keptAtMostUntil)),
      waiting: this.#callsBehind(lease),
    };
    this.#backend.extend(request, (outcome) => {
      const { lease: answered, keptUntil } = extension;
      answered.onAnswer();
      this.#onExtended(answered, outcome, keptUntil);
      this.onExtension?.(answered, outcome.status, this.now() - since);
      done(outcome);
    });
  }

  #callsBehind(lease: Lease): CallsBehind | undefined {
    // A call that begins with a handed-over lock still counts as waiting here.
    const calls = lease.provisionalTtlMs === undefined ? lease.line.behind : 0;
    return calls === 0 ? undefined : { calls, forMs: Math.ceil(lease.ttlMs * SHOWN_FOR) };
  }

  /** Handles the answer to an extension. It changes nothing if the lease was released or lost meanwhile. */
  #onExtended(lease: Lease, outcome: ExtendOutcome, keptUntil: number): void {
    switch (outcome.status) {
      case 'extended':
        if (lease.onExtended(outcome.sentAt, keptUntil)) this.watch(lease);
        break;
      case 'lost':
        lease.lose(lease.isSuspectedForced ? 'forced' : outcome.reason);
        break;
      case 'unavailable':
        if (!lease.onExtensionFailed(outcome.causes[0])) return;
        if (lease.checkAlive()) this.watchFailed(lease);
        this.#events.next({ type: 'extension-failed', causes: outcome.causes, ...this.identity(lease) });
        break;
    }
  }

  /** Extends a lease now, if it is still held. @param ask called just before the extension is sent */
  async #extendNow(lease: Lease, ask: () => void = ignore): Promise<ExtendOutcome> {
    while (lease.isExtending) await lease.untilAnswered(); // one at a time: the last answer belongs to the last command
    if (!lease.checkHeld()) return ENDED;
    ask();
    return new Promise((resolve) => this.#extend(lease, resolve));
  }

  /** Extends a lease that lasts longer in the store than any call wants. If that fails, the next extension does it. */
  async #shorten(lease: Lease): Promise<void> {
    while (lease.isExtending) await lease.untilAnswered();
    if (lease.checkHeld() && lease.lastsTooLong) this.#extend(lease);
  }

  /** Why the time of a lease is over. */
  expiryReason(lease: Lease): LockLostReason {
    if (lease.demands.overstaysAt <= lease.deadline) return 'overstayed';
    if (!lease.autoExtend) return 'expired';
    return this.#watchdog.lateMs > lengthMs(lease) * STALLED_AFTER ? 'stalled' : 'unavailable';
  }

  /** Called by a lease whose loss was detected. The code that detected the loss goes on first. */
  onLossDetected(lease: Lease): void {
    this.#lost.add(lease);
    void SOON.then(() => this.settle()); // once for each lease: if a listener throws, the next loss is still settled
  }

  /**
   * The one place where the loss of a lease has consequences. It runs soon after the loss was found. It also runs before another call asks for
   * a lock, and before the application closes.
   */
  settle(): void {
    for (const lease of this.#lost) {
      this.#lost.delete(lease);
      this.#unwatch(lease);
      const reason = lease.lostReason;
      const heldMs = this.heldMs(lease);
      if (reason === 'shutdown') this.#backend.release(lease.grant, { keepUntil: lease.demands.keptUntil }, ignore);
      else if (reason !== 'stolen') this.#lateReleases.add(lease);
      lease.line.onLeaseGone(lease);
      this.#reportIdle();
      this.#events.next({ type: 'lost', reason, heldMs, ...this.identity(lease) });
    }
  }

  /**
   * Releases one handle; the last one releases the lock. The backend repeats a release that fails.
   * @param ttlMs the ttl that its call asks for
   */
  release(lease: Lease, ttlMs = lease.demands.longestTtlMs): Promise<boolean> {
    const isHeld = lease.checkHeld();
    if (!isHeld && lease.checkAlive()) return lease.untilAnswered().then(() => this.release(lease, ttlMs));
    if (lease.demands.calls > 1) {
      lease.demands.leave(ttlMs);
      if (lease.lastsTooLong) void this.#shorten(lease);
      return Promise.resolve(isHeld);
    }
    if (!isHeld) return this.#releaseLost(lease);
    // In this order and at once: after the release, no extension may be sent and no waiter may join.
    this.#unwatch(lease);
    lease.release();
    const heldMs = this.heldMs(lease);
    const givenBack = lease.line.passOn(lease) ? undefined : this.#giveBack(lease, heldMs);
    this.#reportIdle();
    if (givenBack) return givenBack;
    this.#reportReleased(lease, heldMs);
    return RELEASED;
  }

  /** @returns whether the store had the lock until now */
  #giveBack(lease: Lease, heldMs: number): Promise<boolean> {
    const { keptUntil } = lease.demands;
    this.#releasing.push(lease);
    return new Promise((resolve) => {
      lease.line.giveBack(lease, (outcome) => {
        this.#releasing.remove(lease);
        resolve(this.#onReleased(lease, outcome, heldMs, keptUntil));
      });
    });
  }

  #onReleased(lease: Lease, outcome: ReleaseOutcome, heldMs: number, keptUntil: number): boolean {
    switch (outcome.status) {
      case 'released':
        this.#reportReleased(lease, heldMs, keptUntil);
        return true;
      case 'gone':
        // Nobody knows when it disappeared: the work may have overlapped with another holder.
        lease.markMissing();
        this.#events.next({ type: 'lost', reason: lease.lostReason, heldMs, ...this.identity(lease) });
        return false;
      case 'unavailable':
        this.#reportUnreleased(lease, outcome.causes);
        return false;
    }
  }

  /**
   * The work under a lost lease has ended. A lock that was held for too long is released now, since nobody needs it any more. `settle` handles
   * every other loss.
   * @returns whether the lock was released
   */
  #releaseLost(lease: Lease): Promise<boolean> {
    if (lease.lostReason !== 'overstayed') return NOT_RELEASED;
    this.settle(); // the loss may have been found a moment ago
    return new Promise((resolve) => {
      const isSent = this.#lateReleases.releaseNow(lease, (outcome) => {
        if (outcome.status === 'unavailable') this.#reportUnreleased(lease, outcome.causes);
        resolve(outcome.status === 'released');
      });
      if (!isSent) resolve(false);
    });
  }

  /** Reports a release, but only to observers, or while the application closes: most events are of this type. */
  #reportReleased(lease: Lease, heldMs: number, keptUntil = 0): void {
    if (this.#events.observed || this.#isClosing)
      this.#events.next({ type: 'released', heldMs, ...until(keptUntil), ...this.identity(lease) });
  }

  #reportUnreleased(lease: Lease, causes: readonly NodeError[]): void {
    this.#events.next({ type: 'release-failed', causes, ...this.identity(lease) });
  }

  /** The lock of this lease has another holder now: it was detached, or downgraded. */
  giveAway(lease: Lease): void {
    this.#unwatch(lease);
    lease.release();
    lease.line.onLeaseGone(lease);
    this.#reportIdle();
  }

  /**
   * A handle is garbage, and was not released. Unless other calls hold the lease, nothing extends it any more, and it ends by itself: the
   * work may still run.
   * @param ttlMs the ttl that its call asks for
   */
  abandon(lease: Lease, ttlMs: number): void {
    if (!lease.checkAlive()) return;
    const { key } = lease;
    const message =
      `Lock ${quoted(key)} was never released, and its handle was garbage-collected. The lock is no longer extended, and expires. Release each lock ` +
      'in a finally block, or use withLock.';
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

  #unwatch(lease: Lease): void {
    this.#watchdog.remove(lease);
    this.#abandoned.delete(lease);
  }

  /** Whether the store may still have the lock of this owner value, though its lease has ended here. */
  mayStillHold(owner: string): boolean {
    return this.#lateReleases.has(owner) || this.#releasing.filter(({ grant }) => grant.owner === owner).length > 0;
  }

  /**
   * A call extends a lease now. Later extensions use the longest ttl that a call asks for.
   * @param ask called just before the extension is sent: the call asks for this ttl from now on
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async extend(
    lease: Lease,
    ttlMs: number,
    ask: () => void = () => lease.demands.changeTtl(lease.demands.longestTtlMs, ttlMs),
  ): Promise<void> {
    checkTtl(ttlMs, this.marginMs, this.#backend.bounds);
    const outcome = await this.#extendNow(lease, ask);
    if (outcome.status === 'lost' || !lease.checkHeld()) throw lease.lostError();
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', lease.key, outcome.causes);
  }

  /** Extends a lease to its ttl, and makes the store keep the lock for at least `holdMs`, even if this process dies. */
  holdAtLeast(lease: Lease, holdMs: number): MinimumHold {
    const { key, demands } = lease;
    const assertHeld = () => {
      if (!lease.checkHeld()) throw lostBefore('it could be kept', lease, 'kept');
    };
    if (lease.checkHeld() && demands.keptForMs >= holdMs) return { key, assertHeld, ...HELD_LONG_ENOUGH }; // for an outer call
    const until = monotonic() + holdMs;
    demands.requestHold(until); // at once: others may extend the lease while this call waits for its other locks
    return {
      key,
      assertHeld,
      confirmed: this.#confirmed(lease),
      confirm: () => demands.confirmHold(until),
      cancel: () => {
        demands.cancelHold(until);
        void this.#shorten(lease);
      },
    };
  }

  /** @throws LockUnavailableError */
  async #confirmed(lease: Lease): Promise<void> {
    const outcome = await this.#extendNow(lease);
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('kept', lease.key, outcome.causes);
    if (outcome.status === 'lost' || !lease.checkHeld()) throw lostBefore('it could be kept', lease, 'kept');
  }

  /** A call has to end by then, by the clock of the service: after that its lease is lost. */
  endBy(lease: Lease, until: number): void {
    lease.demands.endBy(until);
    if (lease.checkAlive() && until < lease.dueAt) this.watch(lease);
  }

  /** A call with `maxHoldMs` has ended, and other calls still hold the lease. */
  liftEnd(lease: Lease, until: number): void {
    if (!lease.checkAlive()) return;
    lease.demands.liftEnd(until);
    if (lease.dueAt === until) this.watch(lease);
  }

  /** See `LockBackend.guard`; undefined if the store has none. */
  guard(leases: readonly Lease[], passedOnForMs: number): GuardStatement | undefined {
    if (!this.#backend.guard) return undefined;
    for (const lease of leases) lease.isGuarded = true; // before a transaction can use the statement
    const grants = leases.map(({ grant }) => grant);
    return this.#backend.guard(grants, passedOnForMs);
  }

  /** Another process may have taken the lock by force: an extension finds out. Without the watchdog, it would change when the lease ends. */
  check(lease: Lease): void {
    this.suspectedForced.add(lease.grant);
    if (!lease.autoExtend) return;
    void this.#extendNow(lease).then(({ status }) => {
      if (status === 'extended') this.suspectedForced.delete(lease.grant); // this extension was sent later
    });
  }

  /** Aborts when the application begins to close. */
  closingSignal(lease: Lease): AbortSignal {
    if (this.#isClosing && !lease.closing.aborted) lease.askToEnd(); // it began to close before the lease did
    return lease.closing;
  }

  /** The application begins to close: asks the work under all leases to end. */
  askToEnd(): void {
    this.settle();
    this.#isClosing = true;
    for (const lease of this.#watchdog.items) lease.askToEnd();
  }

  /** Reports that the application waits for the locks that are held, for at most `timeoutMs`. */
  announceWait(timeoutMs: number): void {
    this.settle();
    for (const lease of this.#watchdog.items.filter((each) => !this.#abandoned.has(each)))
      this.#events.next({ type: 'closing', timeoutMs, ...this.identity(lease) });
  }

  /** Waits until nothing is held any more. */
  whenIdle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle = resolve;
      this.#reportIdle();
    });
  }

  #reportIdle(): void {
    if (this.#onIdle && this.isIdle) this.#onIdle();
  }

  /** Ends all leases: the shutdown takes the locks that are still held. */
  end(): void {
    for (const lease of this.#watchdog.items) lease.lose('shutdown');
    this.settle();
    this.#lateReleases.end();
    this.#watchdog.stop();
  }
}

const ENDED = { status: 'lost', reason: 'expired' } as const satisfies ExtendOutcome;
const HELD_LONG_ENOUGH: Omit<MinimumHold, 'key' | 'assertHeld'> = {
  confirmed: Promise.resolve(),
  confirm: ignore,
  cancel: ignore,
};
const RELEASED = Promise.resolve(true);
const NOT_RELEASED = Promise.resolve(false);
const SOON = Promise.resolve();

/** Ignores the outcome of an extension, or of a release, which the backend repeats. */
function ignore(): void {}

/** How long a lease is, in milliseconds: from when its command was sent to its deadline. */
function lengthMs({ sentAt, deadline }: Lease): number {
  return deadline - sentAt;
}

function until(keptUntil: number): { keptUntil?: Date } {
  const keptForMs = leftMs(keptUntil);
  return keptForMs > 0 ? { keptUntil: new Date(Date.now() + keptForMs) } : {};
}
