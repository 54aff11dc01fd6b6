import type { HeldAs } from '../../api/events.js';
import { EXCLUSIVE, type Grant, type Hold } from '../backend/lock-backend.js';
import { LockLostError, LockUnavailableError, type LockLostReason, type LockOutcome } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import type { Linked, LinkedList } from '../time/linked-list.js';
import { leftMs, monotonic, validityMs } from '../time/clock.js';
import { abort, sharedController } from '../time/notify.js';
import { Demands } from './demands.js';
import type { Line } from './line.js';
import type { Leases } from './leases.js';
import type { LockHandle } from './lock-handle.js';

/**
 * - `held`: its calls may rely on it.
 * - `extending`: they may rely on it, and an extension is in flight.
 * - `unknown`: its time is over, unless the extension in flight was granted.
 * - `lost`: it ended before it was released; the error names the reason.
 * - `released`: its holder gave it back.
 */
export type LeaseState = 'held' | 'extending' | 'unknown' | 'lost' | 'released';

/** A lease is passed on only in this first fraction of its time. */
const PASS_ON_FRACTION = 1 / 3;
/** The same for a provisional grant that is being extended: much of its short time may be over. */
const PASS_ON_FRACTION_PROVISIONAL = 2 / 3;

/** The states that may follow each state. */
const NEXT: Readonly<Record<LeaseState, readonly LeaseState[]>> = {
  held: ['extending', 'lost', 'released'],
  extending: ['held', 'unknown', 'lost', 'released'],
  unknown: ['held', 'lost'],
  lost: [],
  released: [],
};

/** How a lease is passed on to more calls of this process: to one after the other, or to all at once if it is shared. */
export interface Cohort {
  /** No call of another process came earlier than this, by the monotonic clock in milliseconds. Undefined: unknown. */
  readonly nobodyBefore?: number;
  /** It is passed on until then, even if others wait, by the clock of the service. */
  readonly until: number;
  /** How many more calls can have it. */
  turnsLeft: number;
  /** The token of the next call, if each call has its own token. */
  nextToken?: number;
}

/** How a lease begins. */
export interface LeaseTerms {
  readonly grant: Grant;
  /** One of the tokens of the grant, if it has any. */
  readonly fencingToken?: number;
  readonly ttlMs: number;
  /** When the command that won was sent. */
  readonly sentAt: number;
  /** Whether the watchdog extends it. */
  readonly autoExtend: boolean;
  /** The ttl for its first extension, which is sent at once, if the grant lasts for a short time only. */
  readonly extendTo?: number;
  /** The label of its call, if the call has its own. */
  readonly label?: string;
}

/** An extension in flight. */
export interface Extension {
  /** The lease that its answer is for. If the lock is passed on meanwhile, that is the lease of the next call. */
  lease: Lease;
  /** The deadline if the extension is granted. */
  readonly deadline: number;
  /** The store then keeps the lock until this time, by the monotonic clock; 0: no longer than the ttl. */
  readonly keptUntil: number;
}

/**
 * One lock that this process was granted, until it is released or lost.
 *
 * ```
 * held                     ──▶ extending   an extension, or a transfer, is sent: only one of them is in flight
 * extending                ──▶ held        it was granted; or it failed, and the lease runs on
 * extending                ──▶ unknown     the deadline of a provisional grant has passed, but perhaps not that of the extension
 * unknown                  ──▶ held        the extension was granted
 * held, extending, unknown ──▶ lost        the deadline has passed, a call has held it for too long, or the store has ended it
 * held, extending          ──▶ released    its last handle was released, or it was detached. While it is unknown, a release waits for the answer
 * ```
 *
 * The methods that begin with `check` compute from the clock whether the lease is held, since after a pause of the process user code runs
 * before any timer. If they find that the lease has ended, it is lost, with its reason, and its signal aborts before they return.
 */
export class Lease implements Linked<Lease> {
  readonly grant: Grant;
  readonly fencingToken?: number;
  readonly label?: string;
  /** When this process learned of the grant, by the clock of the service. */
  readonly begunAt: number;
  readonly demands: Demands;
  /** The ttl of its last extension, in milliseconds. */
  ttlMs: number;
  /** The short time of a provisional grant, in milliseconds, until the first extension confirms it. */
  provisionalTtlMs?: number;
  /** When the command that granted or last extended it was sent. */
  sentAt: number;
  /** Whether the watchdog extends it. */
  autoExtend: boolean;
  /** When it is due for the watchdog, by the clock of the service. */
  dueAt = 0;
  list?: LinkedList<Lease>;
  next?: Lease;
  previous?: Lease;

  /** Undefined: it is not passed on. */
  cohort?: Cohort;
  /** The lease of the same call after it has downgraded the lock. */
  downgradedTo?: Lease;
  /** The handle to register for garbage collection with the first extension. Most locks are released before, and cost no registration. */
  unregistered?: LockHandle;
  /** Whether a transaction of its work may keep the lock. Then the next call has to ask the store, which waits for that transaction. */
  isGuarded = false;

  #state: LeaseState = 'held';
  #deadline: number;
  /** The extension in flight, until its answer comes, even if the lease was released meanwhile. */
  #extension?: Extension;
  #whenAnswered?: (() => void)[];
  /** Whether an unconfirmed extension has changed the ttl: then nobody knows which ttl the store has. */
  #isUnsettled = false;
  #isDetaching = false;
  /** The error of its last extension or transfer, if it failed. */
  #fault?: Error;
  /** The store may keep it until then if an extension was longer than the ttl, by the monotonic clock. */
  #lastsUntil = 0;
  /** When another call of this process passed it on, by the monotonic clock: a wall clock can be set back. */
  #passedOnAt = -Infinity;
  #lost?: LockLostError;
  #lostAt = 0;
  #abort?: AbortController;
  #closing?: AbortController;

  constructor(
    { grant, fencingToken, ttlMs, sentAt, autoExtend, extendTo, label }: LeaseTerms,
    readonly line: Line,
    private readonly leases: Leases,
  ) {
    this.grant = grant;
    this.fencingToken = fencingToken;
    this.label = label;
    this.autoExtend = autoExtend;
    this.ttlMs = ttlMs;
    this.demands = new Demands(extendTo ?? ttlMs);
    this.sentAt = sentAt;
    this.provisionalTtlMs = extendTo === undefined ? undefined : ttlMs;
    this.begunAt = leases.now();
    this.#deadline = sentAt + validityMs(ttlMs, leases.marginMs);
  }

  get key(): string {
    return this.grant.key;
  }

  get deadline(): number {
    return this.#deadline;
  }

  /** When its time is over unless it is extended: at its deadline, or earlier if a call has held it for too long. */
  get endsAt(): number {
    return Math.min(this.#deadline, this.demands.overstaysAt);
  }

  /** When it ends in the store at the latest, less drift, by the clock of the service: the extension in flight may be granted. */
  get runsUntil(): number {
    return Math.max(this.#deadline, this.#extension?.deadline ?? 0);
  }

  /** Whether another process may have taken its lock by force, according to a message or a call. */
  get isSuspectedForced(): boolean {
    return this.leases.suspectedForced.has(this.grant);
  }

  /** Whether it may last longer in the store than any call wants: a call that wanted more time has gone. */
  get lastsTooLong(): boolean {
    if (this.demands.longestTtlMs < this.ttlMs) return true;
    return this.#lastsUntil > 0 && this.#lastsUntil > Math.max(this.demands.keptAtMostUntil, monotonic() + this.ttlMs);
  }

  /**
   * Whether it may be passed on to another call of this process. A transaction that guards it may still run after the release. The next
   * holder must not begin with a lease that is nearly over, or whose end in the store does not follow from its ttl.
   */
  canBePassedOn(now: number): boolean {
    const { cohort, isGuarded, sentAt, provisionalTtlMs } = this;
    if (!cohort || cohort.turnsLeft === 0 || isGuarded || this.#mayEndAtAnotherTime) return false;
    const fraction = provisionalTtlMs === undefined ? PASS_ON_FRACTION : PASS_ON_FRACTION_PROVISIONAL;
    return now < sentAt + (this.#deadline - sentAt) * fraction;
  }

  get #mayEndAtAnotherTime(): boolean {
    const isUnsettled = this.#isUnsettled && this.provisionalTtlMs === undefined;
    return isUnsettled || leftMs(this.demands.keptAtMostUntil) > 0 || this.lastsTooLong;
  }

  /** Its state right now: when its time is over, a lease is neither `held` nor `extending`. */
  checkState(): LeaseState {
    if (this.#hasEnded) return this.#state;
    const now = this.leases.now();
    if (now < this.endsAt) return this.#state;
    // A process that was busy since the lease began may not have read the answer to its first extension.
    const unanswered = this.provisionalTtlMs === undefined ? undefined : this.#extension;
    if (unanswered && now < Math.min(unanswered.deadline, this.demands.overstaysAt)) this.#enter('unknown');
    else this.lose(this.leases.expiryReason(this));
    return this.#state;
  }

  /** Whether its call may rely on it right now. */
  checkHeld(): boolean {
    const state = this.checkState();
    return state === 'held' || state === 'extending';
  }

  /** Whether it has not ended, as far as this process knows. */
  checkAlive(): boolean {
    return this.checkHeld() || this.#state === 'unknown';
  }

  /** Whether the lock was lost: while it was held, or before the release reached the store. */
  checkLost(): boolean {
    return this.checkState() === 'lost' || this.#lost !== undefined;
  }

  checkRemainingMs(): number {
    return this.checkHeld() ? Math.max(0, this.endsAt - this.leases.now()) : 0;
  }

  /** Whether an extension is in flight. Does not look at the clock. */
  get isExtending(): boolean {
    return this.#state === 'extending' || this.#state === 'unknown';
  }

  /** Waits for the answer to the extension in flight, or for the end of the lease. */
  untilAnswered(): Promise<void> {
    return this.isExtending ? new Promise((resolve) => (this.#whenAnswered ??= []).push(resolve)) : Promise.resolve();
  }

  /**
   * An extension is about to be sent. Until its answer comes, the earlier of the two deadlines counts.
   * @returns undefined when it may not be extended now
   */
  beginExtension(ttlMs: number): Extension | undefined {
    if (!this.#enter('extending')) return undefined;
    if (ttlMs !== this.ttlMs) this.#isUnsettled = true;
    this.ttlMs = ttlMs;
    const { keptAtMostUntil } = this.demands;
    const keptUntil = leftMs(keptAtMostUntil) > ttlMs ? keptAtMostUntil : 0;
    this.#lastsUntil = Math.max(this.#lastsUntil, keptUntil);
    const deadline = this.#deadlineBy(ttlMs);
    this.#deadline = Math.min(this.#deadline, deadline);
    return (this.#extension = { lease: this, deadline, keptUntil });
  }

  /** The answer to the extension in flight has come. Called before it is read. */
  onAnswer(): void {
    this.#extension = undefined;
  }

  /**
   * The extension was granted.
   * @param keptUntil see `Extension`
   * @returns false when the lease had ended before
   */
  onExtended(sentAt: number, keptUntil = 0): boolean {
    if (!this.#enter('held')) return false;
    this.sentAt = sentAt;
    this.#fault = undefined;
    this.#isUnsettled = false;
    this.#lastsUntil = keptUntil;
    this.provisionalTtlMs = undefined;
    this.#deadline = sentAt + validityMs(this.ttlMs, this.leases.marginMs);
    return true;
  }

  /**
   * The extension failed: the lease runs on until its deadline.
   * @returns false when the lease had ended before
   */
  onExtensionFailed(fault?: Error): boolean {
    if (this.#hasEnded) return false;
    this.#fault = fault;
    if (this.#state === 'unknown') this.lose(this.leases.expiryReason(this));
    else this.#enter('held');
    return true;
  }

  /**
   * A transfer is about to be sent. Until its answer comes, the earlier of the two deadlines counts.
   * @returns the deadline if the transfer fails; undefined when it may not be transferred now
   */
  beginDetaching(ttlMs: number): number | undefined {
    if (!this.#enter('extending')) return undefined;
    this.#isDetaching = true;
    const before = this.#deadline;
    this.#deadline = Math.min(before, this.#deadlineBy(ttlMs));
    return before;
  }

  /** The transfer failed: the lease runs on until the deadline that it had before. */
  onDetachFailed(deadlineBefore: number, fault?: Error): void {
    this.#deadline = deadlineBefore;
    this.onExtensionFailed(fault);
  }

  /** Whether a transfer has not ended yet. A nested call waits for its outcome. */
  get isDetaching(): boolean {
    return this.#isDetaching;
  }

  /** @returns false when it was not held any more, or when that is unknown */
  release(): boolean {
    return this.#enter('released');
  }

  /**
   * Passes the released lock on to the next call of this process.
   * @returns the lease of that call, which has the remaining time, and gets the answer to the extension in flight
   */
  passOn(fencingToken: number | undefined, label: string | undefined): Lease {
    const { grant, ttlMs, sentAt } = this;
    const next = new Lease({ grant, fencingToken, ttlMs, sentAt, autoExtend: true, label }, this.line, this.leases);
    next.provisionalTtlMs = this.provisionalTtlMs;
    next.#isUnsettled = this.#isUnsettled;
    next.cohort = this.cohort;
    next.#passedOnAt = monotonic();
    next.#deadline = this.#deadline;
    if (this.#extension) {
      next.#enter('extending');
      next.#extension = this.#extension;
      next.#extension.lease = next;
    }
    return next;
  }

  /** How long ago another call of this process passed it on, in milliseconds; Infinity: none did. */
  get passedOnForMs(): number {
    return monotonic() - this.#passedOnAt;
  }

  /**
   * It has ended before its release.
   * @param fault the error that caused the loss, if it is not the error of the last extension
   * @returns false when it had ended already
   */
  lose(reason: LockLostReason, fault = this.#fault): boolean {
    if (!this.#enter('lost')) return false;
    this.#fault = fault;
    this.#lost = this.#errorOf(reason, undefined, fault);
    this.#lostAt = this.leases.now();
    this.leases.onLossDetected(this);
    if (this.#abort) abort(this.#abort, this.#lost);
    return true;
  }

  /** The release found that the store did not have this lock any more. */
  markMissing(): void {
    this.#lost = this.#errorOf(this.isSuspectedForced ? 'forced' : 'expired');
  }

  /** Why it is not held; `unavailable` as long as that is unknown. */
  get lostReason(): LockLostReason {
    return this.#lost?.reason ?? (this.#state === 'released' ? 'released' : 'unavailable');
  }

  /** How long ago the loss was found, in milliseconds. */
  get lostForMs(): number {
    return this.leases.now() - this.#lostAt;
  }

  /** The error of a lease that is not held. */
  lostError(outcome?: LockOutcome): LockLostError {
    // A nested call under the same lock has reported the loss already. The outcome of its work counts.
    const reason: unknown = outcome?.status === 'rejected' ? outcome.reason : undefined;
    const inner = reason instanceof LockLostError && reason.key === this.key ? reason.outcome : undefined;
    return this.#errorOf(this.lostReason, inner ?? outcome, this.#fault);
  }

  /** Aborts when the lease is lost. */
  checkSignal(): AbortSignal {
    const state = this.checkState();
    if (!this.#abort) {
      this.#abort = sharedController(); // made on demand: most calls never read the signal
      if (state === 'lost') abort(this.#abort, this.#lost);
    }
    return this.#abort.signal;
  }

  /** Aborts when the application closes: the work under the lease should end. */
  get closing(): AbortSignal {
    this.#closing ??= sharedController(); // one for each lease, so that its listeners are collected with it
    return this.#closing.signal;
  }

  /** The application closes: asks the work under the lease to end. */
  askToEnd(): void {
    this.#closing ??= sharedController();
    abort(
      this.#closing,
      new LockUnavailableError(`The application is closing: work under lock ${quoted(this.key)} should end.`, this.key),
    );
  }

  get #hasEnded(): boolean {
    return this.#state === 'lost' || this.#state === 'released';
  }

  /** @returns false when this state may not follow the current one */
  #enter(next: LeaseState): boolean {
    if (!NEXT[this.#state].includes(next)) return false;
    this.#state = next;
    if (!this.isExtending) this.#isDetaching = false;
    if (this.#whenAnswered && !this.isExtending) {
      for (const resolve of this.#whenAnswered) resolve();
      this.#whenAnswered = undefined;
    }
    return true;
  }

  /** The deadline of a command with this ttl that is sent now. */
  #deadlineBy(ttlMs: number): number {
    return this.leases.now() + validityMs(ttlMs, this.leases.marginMs);
  }

  #errorOf(reason: LockLostReason, outcome?: LockOutcome, cause?: Error): LockLostError {
    const isOfPermits = this.grant.hold?.mode === 'permits';
    if (isOfPermits) return LockLostError.ofPermits(this.key, reason, outcome, cause);
    return new LockLostError(this.key, reason, outcome, cause);
  }
}

/** How a lock is held, for events and traces. They have no fields for an exclusive lock. */
export function heldAs(hold: Hold = EXCLUSIVE): HeldAs {
  if (hold.mode === 'exclusive') return EXCLUSIVELY;
  return hold.mode === 'permits' ? { mode: 'permits', permits: hold.permits } : { mode: hold.mode };
}

const EXCLUSIVELY: HeldAs = {};
