import type { Subject } from 'rxjs';
import { LockLostError, LockOptionsError, LockUnavailableError } from '../../api/errors.js';
import { failureEvent, type LockEvent } from '../../api/events.js';
import { digestOf } from '../../api/holder.js';
import type { LockParcel } from '../../api/parcel.js';
import { quoted } from '../../api/printable.js';
import {
  LONGEST_TTL_MS,
  type ExtendOutcome,
  type Grant,
  type LockBackend,
  type ReleaseOutcome,
  type Transfer,
  type TransferOutcome,
} from '../backend/lock-backend.js';
import { ReleaseRetry } from '../backend/release-retry.js';
import type { Lease } from '../lease/lease.js';
import type { Leases } from '../lease/leases.js';
import { LockHandle } from '../lease/lock-handle.js';
import { driftMs, validityMs } from '../time/clock.js';
import type { InFlight } from '../time/in-flight.js';
import type { Lines } from '../waiting/line.js';
import { answeredTooLate, closed } from '../waiting/refusals.js';
import type { Closing } from '../waiting/waiter.js';

/** What parcels need of their engine. */
interface ParcelsParts {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly leases: Leases;
  readonly lines: Lines;
  readonly inFlight: InFlight;
  readonly events: Subject<LockEvent>;
  readonly nextOwner: () => string;
}

/** How a lock is adopted. */
export interface Adopting {
  readonly ttlMs: number;
  readonly watchdog: boolean;
}

/**
 * What is done with the parcels of detached locks. No message, event or error shows the owner value of one: who knows it can take the lock.
 */
export class Parcels {
  /** What undoes adoptions: the parcel is to hold the lock again. */
  readonly #undoing: ReleaseRetry<Transfer>;
  /** The same by the owner of the parcel. */
  readonly #undos = new Map<string, Set<Transfer>>();

  constructor(private readonly parts: ParcelsParts) {
    this.#undoing = new ReleaseRetry((undo, done) => {
      void this.#giveBack(undo).then(({ status }) => done(status !== 'unavailable'));
    });
    parts.backend.onReachable = () => this.#undoing.hurry();
  }

  get size(): number {
    return this.#undoing.size;
  }

  /**
   * Makes this process the holder of a detached lock, under an owner value of its own and with a new token: of all who try, one succeeds. If
   * it fails, and may have happened, the lock is given back to the parcel, which can be adopted again.
   * @throws LockLostError, LockUnavailableError, LockOptionsError
   */
  async adopt(parcel: LockParcel, { ttlMs, watchdog }: Adopting, closing: Closing): Promise<LockHandle> {
    const { backend, events, inFlight, leases, lines, nextOwner, now } = this.parts;
    const { key, owner } = parcel;
    if (closing.phase === 'closed') throw closed(key);
    if (!backend.transfer) {
      const { whyNoTransfer = 'Its store cannot change the holder of a lock.' } = backend;
      throw new LockOptionsError(`Lock ${quoted(key)} cannot be adopted. ${whyNoTransfer}`);
    }
    // Until it is known to have happened, no time of the parcel may be lost.
    const transfer: Transfer = { key, from: owner, to: nextOwner(), ttlMs, atLeast: true, mints: true };
    const since = now();
    inFlight.begin();
    try {
      leases.settle(); // a lease that was found lost in this very line is not in the way
      const outcome = (await this.#undone(owner)) ?? (await backend.transfer(transfer));
      if (outcome.status === 'lost') throw LockLostError.ofParcel(key, outcome.reason, digestOf(owner));
      if (outcome.status === 'unavailable') {
        if (outcome.mayHaveRun) this.#undo(transfer);
        throw LockUnavailableError.from('adopted', key, outcome.causes);
      }
      const { grant, sentAt } = outcome;
      const refusal = this.#refusal(key, ttlMs, sentAt, closing);
      if (refusal) {
        this.#undo(transfer);
        this.#undoing.hurry();
        throw refusal;
      }
      const lease = lines.adopt(grant, ttlMs, sentAt, watchdog);
      this.#noteAdopted(lease, now() - since);
      leases.extend(lease, ttlMs).catch(ignore); // from now on the lock ends with its holder; the watchdog tries again
      return new LockHandle(lease, leases, 'adopted');
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
    const outcome = await this.#inFlight<ExtendOutcome>((done) => this.parts.backend.extend({ grant, ttlMs }, done));
    if (outcome.status === 'lost') throw LockLostError.ofParcel(parcel.key, outcome.reason, digestOf(parcel.owner));
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', parcel.key, outcome.causes);
  }

  /** @returns whether the parcel had the lock @throws LockUnavailableError; the release is then repeated by the backend */
  async release(parcel: LockParcel): Promise<boolean> {
    const grant = grantOf(parcel);
    const outcome = await this.#inFlight<ReleaseOutcome>((done) => this.parts.backend.release(grant, {}, done));
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('released', parcel.key, outcome.causes);
    return outcome.status === 'released';
  }

  /** Tries once more to undo what is to be undone. */
  close(): Promise<void> {
    return this.#undoing.close();
  }

  /** Why a lock that was adopted is of no use to its caller. */
  #refusal(key: string, ttlMs: number, sentAt: number, closing: Closing): Error | undefined {
    if (closing.phase === 'closed') return closed(key);
    const { leases, now } = this.parts;
    const isOver = now() >= sentAt + validityMs(ttlMs, leases.marginMs);
    return isOver ? answeredTooLate(key, ttlMs, now() - sentAt) : undefined;
  }

  #noteAdopted(lease: Lease, waitedMs: number): void {
    const { events, leases } = this.parts;
    if (!events.observed) return;
    events.next({ type: 'acquired', waitedMs: Math.round(waitedMs), grant: 'adopted', ...leases.identity(lease) });
  }

  /** The parcel is to have the lock again, with the time that is left. */
  #undo({ key, from, to }: Transfer): void {
    const back: Transfer = { key, from: to, to: from, ttlMs: 1, atLeast: true, mints: false };
    if (this.#undoing.size === 0) this.#undos.clear(); // those that have ended by themselves
    this.#undos.set(from, (this.#undos.get(from) ?? new Set()).add(back));
    this.#undoing.add(back, LONGEST_TTL_MS + driftMs(LONGEST_TTL_MS));
  }

  /**
   * Undoes earlier adoptions of a parcel that may have happened, so that it has the lock again.
   * @param owner that of the parcel
   * @returns why that is not known yet
   */
  async #undone(owner: string): Promise<Extract<TransferOutcome, { status: 'unavailable' }> | undefined> {
    for (const undo of this.#undos.get(owner) ?? []) {
      const outcome = await this.#giveBack(undo);
      if (outcome.status === 'unavailable') return { ...outcome, mayHaveRun: false };
    }
    return undefined;
  }

  async #giveBack(undo: Transfer): Promise<TransferOutcome> {
    const outcome = await this.parts.backend.transfer!(undo);
    const undos = this.#undos.get(undo.to);
    if (outcome.status !== 'unavailable' && undos?.delete(undo) && undos.size === 0) this.#undos.delete(undo.to);
    return outcome;
  }

  #inFlight<Outcome>(ask: (done: (outcome: Outcome) => void) => void): Promise<Outcome> {
    const { inFlight } = this.parts;
    inFlight.begin();
    return new Promise<Outcome>(ask).finally(() => inFlight.end());
  }
}

/** The lock of a parcel, as a backend takes one that another process was granted. */
function grantOf({ key, owner, fencingToken }: LockParcel): Grant {
  return { key, owner, fencingToken };
}

function ignore(): void {}
