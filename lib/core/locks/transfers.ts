import { randomUUID } from 'node:crypto';
import { LockLostError, LockOptionsError, LockUnavailableError } from '../../api/errors.js';
import { failureEvent } from '../../api/events.js';
import { detachedOwner, digestOf, noteIn } from '../../api/holder.js';
import type { DetachOptions, LockParcel } from '../../api/parcel.js';
import { quoted } from '../../api/printable.js';
import {
  EXCLUSIVE,
  LONGEST_TTL_MS,
  SHARED,
  type ExtendOutcome,
  type Grant,
  type LockBackend,
  type ReleaseOutcome,
  type Transfer,
  type TransferOutcome,
} from '../backend/lock-backend.js';
import { ReleaseRetry } from '../backend/release-retry.js';
import type { Lease } from './lease.js';
import { LockHandle } from './lock-handle.js';
import { checkTtl } from '../options/call-options.js';
import { driftMs, validityMs } from '../time/clock.js';
import { answeredTooLate, closed } from './refusals.js';
import type { Closing } from './waiter.js';
import type { LockEngine } from './lock-engine.js';

type Transferred = Extract<TransferOutcome, { status: 'transferred' }>;

/** How a lock is adopted. */
export interface Adopting {
  readonly ttlMs: number;
  readonly watchdog: boolean;
}

/**
 * Changes the owner value of locks, in one step in the store. A detached lock gets an owner value that only its parcel names. An adopted or
 * downgraded lock gets a new one of this process. If nobody knows whether the step has run, it is undone.
 *
 * No message, event or error shows the owner value of a parcel: with it, anybody can take the lock.
 */
export class Transfers {
  /** Undoes adoptions: repeats the transfer back to the parcel until the store confirms it. */
  readonly #undoing: ReleaseRetry<Transfer>;
  /** The transfers of `#undoing`, by the owner value of their parcel. */
  readonly #undos = new Map<string, Set<Transfer>>();

  constructor(private readonly engine: LockEngine) {
    this.#undoing = new ReleaseRetry((undo, done) => {
      void this.#giveBack(undo).then(({ status }) => done(status !== 'unavailable'));
    });
    engine.backend.onReachable = () => this.#undoing.hurry();
  }

  get size(): number {
    return this.#undoing.size;
  }

  /**
   * Makes the store keep the lock for `ttlMs` under an owner value that only the parcel names, and ends the lease here.
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async detach(lease: Lease, { ttlMs, note }: DetachOptions): Promise<LockParcel> {
    const { backend, events, leases } = this.engine;
    const { key, grant, fencingToken = grant.fencingToken } = lease;
    while (lease.isExtending) await lease.untilAnswered();
    const why = whyNotDetached(lease, backend);
    if (why !== undefined) throw new LockOptionsError(`Lock ${quoted(key)} cannot be detached. ${why}`);
    checkTtl(ttlMs, leases.marginMs, backend.bounds);
    const owner = detachedOwner(grant.owner, randomUUID(), note);
    await this.#transfer(lease, 'detached', { key, from: grant.owner, to: owner, ttlMs, mints: false });
    leases.giveAway(lease);
    events.next({
      type: 'detached',
      heldMs: leases.heldMs(lease),
      ttlMs,
      digest: digestOf(owner),
      ...leases.identity(lease),
    });
    return { v: 1, key, owner, fencingToken: fencingToken!, ttlMs }; // a lock without a token is not detached
  }

  /**
   * Turns a lock that this process holds exclusively into a shared one. The lock gets a new owner value, and the token of the shared phase.
   * @returns the new lease
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async downgrade(lease: Lease): Promise<Lease> {
    const { backend, leases, nextOwner } = this.engine;
    const { key, grant, autoExtend, label } = lease;
    while (lease.isExtending) await lease.untilAnswered();
    const why = whyNotDowngraded(lease, backend);
    if (why !== undefined) throw new LockOptionsError(`Lock ${quoted(key)} cannot be downgraded. ${why}`);
    const { ttlMs } = lease;
    const transfer = { key, from: grant.owner, to: nextOwner(noteIn(grant.owner)), ttlMs, mints: true, hold: SHARED };
    const transferred = await this.#transfer(lease, 'downgraded', transfer);
    // The new lease begins before the old one ends, so that the service is never idle in between.
    const next = this.#begin(transferred, ttlMs, autoExtend, label);
    if (lease.demands.overstaysAt < Infinity) leases.endBy(next, lease.demands.overstaysAt);
    lease.downgradedTo = next;
    leases.giveAway(lease);
    next.line.adopt(next);
    return next;
  }

  /**
   * Makes this process the holder of a detached lock, with an owner value of its own and a new token. Only one adoption of a parcel succeeds. If
   * an adoption fails, but may have happened, the parcel gets the lock back, and can be adopted again.
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async adopt(parcel: LockParcel, { ttlMs, watchdog }: Adopting, closing: Closing): Promise<LockHandle> {
    const { backend, events, inFlight, leases, nextOwner, now } = this.engine;
    const { key, owner } = parcel;
    if (closing.phase === 'closed') throw closed(key);
    if (!backend.transfer)
      throw new LockOptionsError(`Lock ${quoted(key)} cannot be adopted. ${whyNoTransfer(backend)}`);
    // With `atLeast`, the parcel does not lose time if the transfer is undone.
    const transfer: Transfer = { key, from: owner, to: nextOwner(noteIn(owner)), ttlMs, atLeast: true, mints: true };
    const since = now();
    inFlight.begin();
    try {
      leases.settle(); // a lease whose loss was detected a moment ago must not be in the way
      const outcome = (await this.#undoEarlier(owner)) ?? (await backend.transfer(transfer));
      if (outcome.status === 'lost') throw LockLostError.ofParcel(key, outcome.reason, digestOf(owner));
      if (outcome.status === 'unavailable') {
        if (outcome.mayHaveRun) this.#undo(transfer);
        throw LockUnavailableError.from('adopted', key, outcome.causes);
      }
      const refusal = this.#refusalOf(key, ttlMs, outcome.sentAt, closing);
      if (refusal) {
        this.#undo(transfer);
        this.#undoing.hurry();
        throw refusal;
      }
      const lease = this.#begin(outcome, ttlMs, watchdog);
      lease.line.adopt(lease);
      this.#noteAdopted(lease, now() - since);
      leases.extend(lease, ttlMs).catch(ignore); // to the ttl of this process; if it fails, the watchdog tries again
      return new LockHandle(lease, this.engine, 'adopted');
    } catch (error) {
      const failure = failureEvent(error, { key, label: leases.labels.of(key), waitedMs: Math.round(now() - since) });
      if (failure) events.next(failure);
      throw error;
    } finally {
      inFlight.end();
    }
  }

  /** @throws LockLostError, LockUnavailableError */
  async extend(parcel: LockParcel, ttlMs: number): Promise<void> {
    const grant = grantOf(parcel);
    const outcome = await this.#inFlight<ExtendOutcome>((done) => this.engine.backend.extend({ grant, ttlMs }, done));
    if (outcome.status === 'lost') throw LockLostError.ofParcel(parcel.key, outcome.reason, digestOf(parcel.owner));
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', parcel.key, outcome.causes);
  }

  /** @returns whether the parcel had the lock @throws LockUnavailableError: the backend then repeats the release */
  async release(parcel: LockParcel): Promise<boolean> {
    const grant = grantOf(parcel);
    const outcome = await this.#inFlight<ReleaseOutcome>((done) => this.engine.backend.release(grant, {}, done));
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('released', parcel.key, outcome.causes);
    return outcome.status === 'released';
  }

  /** Tries each undo once more. */
  close(): Promise<void> {
    return this.#undoing.close();
  }

  /**
   * Transfers a lock of this process to another owner value. If nobody knows whether that has happened, the lease is lost, and the lock is
   * released for both owner values. The old one comes first, so that a transfer that runs late finds nothing.
   * @param done the new state of the lock, for errors
   */
  async #transfer(lease: Lease, done: 'detached' | 'downgraded', transfer: Transfer): Promise<Transferred> {
    const { backend, inFlight, leases } = this.engine;
    const { key, to, ttlMs, hold } = transfer;
    const { grant } = lease;
    const deadlineBefore = lease.checkHeld() ? lease.beginDetaching(ttlMs) : undefined;
    if (deadlineBefore === undefined) throw lease.lostError();
    leases.watch(lease);
    const giveBack = () => {
      for (const each of [grant, { key, owner: to, hold }]) backend.release(each, {}, ignore);
    };
    inFlight.begin();
    try {
      const outcome = await backend.transfer!(transfer);
      const isHeld = lease.checkHeld();
      if (outcome.status === 'transferred' && isHeld) return outcome;
      if (outcome.status === 'lost') {
        lease.lose(lease.isSuspectedForced ? 'forced' : outcome.reason);
        throw lease.lostError();
      }
      if (outcome.status === 'transferred') {
        giveBack();
        throw lease.lostError();
      }
      const error = LockUnavailableError.from(done, key, outcome.causes);
      if (!outcome.mayHaveRun) {
        lease.onDetachFailed(deadlineBefore, outcome.causes[0]);
        if (isHeld) leases.watchFailed(lease);
        throw error;
      }
      lease.lose('unavailable', outcome.causes[0]);
      giveBack();
      const uncertain =
        `The lock may have been ${done}, so this call has lost it. The library releases it as soon as the store can be reached; otherwise it expires ` +
        `after ${ttlMs} ms.`;
      throw new LockUnavailableError(`${error.message} ${uncertain}`, key, outcome.causes);
    } finally {
      inFlight.end();
    }
  }

  #begin({ grant, sentAt }: Transferred, ttlMs: number, autoExtend: boolean, label?: string): Lease {
    const { key, fencingToken, hold = EXCLUSIVE } = grant;
    return this.engine.leases.begin(this.engine.lineOf(key, hold.mode), {
      grant,
      fencingToken,
      ttlMs,
      sentAt,
      autoExtend,
      label,
    });
  }

  /** Why the caller cannot use an adopted lock. */
  #refusalOf(key: string, ttlMs: number, sentAt: number, closing: Closing): Error | undefined {
    if (closing.phase === 'closed') return closed(key);
    const { leases, now } = this.engine;
    const isOver = now() >= sentAt + validityMs(ttlMs, leases.marginMs);
    return isOver ? answeredTooLate(key, ttlMs, now() - sentAt) : undefined;
  }

  #noteAdopted(lease: Lease, waitedMs: number): void {
    const { events, leases } = this.engine;
    if (!events.observed) return;
    events.next({ type: 'acquired', waitedMs: Math.round(waitedMs), grant: 'adopted', ...leases.identity(lease) });
  }

  /** Gives the lock back to the parcel, with its remaining time. */
  #undo({ key, from, to }: Transfer): void {
    const back: Transfer = { key, from: to, to: from, ttlMs: 1, atLeast: true, mints: false };
    if (this.#undoing.size === 0) this.#undos.clear(); // all of them have ended by themselves
    this.#undos.set(from, (this.#undos.get(from) ?? new Set()).add(back));
    this.#undoing.add(back, LONGEST_TTL_MS + driftMs(LONGEST_TTL_MS));
  }

  /**
   * Undoes earlier adoptions of a parcel that may have happened, so that the parcel has the lock again.
   * @param owner the owner value of the parcel
   * @returns why that failed
   */
  async #undoEarlier(owner: string): Promise<Extract<TransferOutcome, { status: 'unavailable' }> | undefined> {
    for (const undo of this.#undos.get(owner) ?? []) {
      const outcome = await this.#giveBack(undo);
      if (outcome.status === 'unavailable') return { ...outcome, mayHaveRun: false };
    }
    return undefined;
  }

  async #giveBack(undo: Transfer): Promise<TransferOutcome> {
    const outcome = await this.engine.backend.transfer!(undo);
    const undos = this.#undos.get(undo.to);
    if (outcome.status !== 'unavailable' && undos?.delete(undo) && undos.size === 0) this.#undos.delete(undo.to);
    return outcome;
  }

  #inFlight<Outcome>(ask: (done: (outcome: Outcome) => void) => void): Promise<Outcome> {
    const { inFlight } = this.engine;
    inFlight.begin();
    return new Promise<Outcome>(ask).finally(() => inFlight.end());
  }
}

/** The lock of a parcel, in the form in which a backend takes grants of other processes. */
function grantOf({ key, owner, fencingToken }: LockParcel): Grant {
  return { key, owner, fencingToken };
}

/** Why a lock cannot be detached, and what to do. */
function whyNotDetached(lease: Lease, backend: LockBackend): string | undefined {
  const { demands, isGuarded, grant } = lease;
  const { mode = 'exclusive' } = grant.hold ?? {};
  if (mode !== 'exclusive')
    return 'Others may hold it together with this call, and the parcel could not say which holder it belongs to. Only exclusive locks can be detached.';
  if (!backend.transfer) return whyNoTransfer(backend);
  if (demands.calls > 1)
    return `${demands.calls} calls of this process hold it, and the others would not learn that they no longer hold it. Detach it when nested calls have ended.`;
  if (demands.keptAtMostUntil > 0)
    return 'It was acquired with holdMs, so it stays with this process. Acquire it without holdMs.';
  if (isGuarded)
    return 'guard was called for it, and a transaction may still guard it. Detach it in a call that does not guard it.';
  if (grant.fencingToken === undefined)
    return 'Its store creates no fencing tokens, so the token of the next holder could not be larger. Keep the lock in a store with fencing tokens.';
  return undefined;
}

/** Why a lock cannot be downgraded, and what to do. */
function whyNotDowngraded(lease: Lease, backend: LockBackend): string | undefined {
  const { demands, isGuarded, grant } = lease;
  const { modes, whyOnlyExclusive } = backend;
  if (!backend.transfer) return whyNoTransfer(backend);
  if (!modes?.includes('shared')) return `Its store has no shared locks. ${whyOnlyExclusive ?? ''}`.trimEnd();
  const { mode = 'exclusive' } = grant.hold ?? {};
  if (mode !== 'exclusive') return `It is held in mode ${mode}. Only exclusive locks can be downgraded.`;
  if (demands.calls > 1)
    return `${demands.calls} calls of this process hold it, and the others rely on exclusive access. Downgrade it when nested calls have ended.`;
  if (demands.keptAtMostUntil > 0)
    return 'It was acquired with holdMs, so it stays exclusive. Acquire it without holdMs.';
  if (isGuarded)
    return 'guard was called for it, and a transaction may still guard it. Downgrade it in a call that does not guard it.';
  return undefined;
}

function whyNoTransfer({ whyNoTransfer: why = 'Its store cannot change the holder of a lock.' }: LockBackend): string {
  return why;
}

/** Ignores the outcome of an extension, or of a release, which the backend repeats. */
function ignore(): void {}
