import { inspect } from 'node:util';
import { LockLostError, LockOptionsError } from '../../api/errors.js';
import { loopTurn } from '../time/event-loop.js';
import type { GuardStatement } from '../backend/lock-backend.js';
import type { LockGrant } from '../../api/events.js';
import type { Lock } from '../../api/lock.js';
import type { LockParcel, ParcelOptions } from '../../api/parcel.js';
import { quoted } from '../../api/printable.js';
import { checkParcelOptions } from '../options/parcel.js';
import type { Lease } from './lease.js';
import type { Leases } from './leases.js';

/** One acquisition's view of a lease; nested acquisitions share the lease and have a handle each. */
export class LockHandle implements Lock {
  /** Whether it was acquired together with others. */
  isOfSet = false;
  #released?: Promise<boolean>;
  /** Until when its call may hold the lock, by the clock. */
  #limit?: number;
  /** Settles when the lock was detached, or was not. */
  #detaching?: Promise<void>;

  constructor(
    readonly lease: Lease,
    private readonly leases: Leases,
    /** How its call came by it. */
    readonly grant: LockGrant | 'reentrant' = 'reentrant',
  ) {}

  /** One more handle of a lease. */
  static another(lease: Lease, leases: Leases): LockHandle {
    lease.handles++;
    return new LockHandle(lease, leases);
  }

  /**
   * The statement with which a transaction keeps the locks of one service until it ends; undefined where their store has none.
   * @param handles at least one
   * @throws LockLostError
   */
  static guard(handles: readonly LockHandle[]): GuardStatement | undefined {
    for (const handle of handles) handle.assertHeld();
    return handles[0]!.leases.guard(handles.map(({ lease }) => lease));
  }

  get key(): string {
    return this.lease.key;
  }

  get owner(): string {
    return this.lease.grant.owner;
  }

  get fencingToken(): number {
    const { fencingToken } = this.lease;
    if (fencingToken !== undefined) return fencingToken;
    throw new LockOptionsError(`Lock ${quoted(this.key)} has no fencing token: its store mints none.`);
  }

  get signal(): AbortSignal {
    return this.lease.checkSignal();
  }

  get closing(): AbortSignal {
    return this.leases.closing(this.lease);
  }

  get isReleased(): boolean {
    return this.#released !== undefined;
  }

  get isHeld(): boolean {
    return !this.#released && this.lease.checkHeld();
  }

  get remainingMs(): number {
    return this.#released ? 0 : this.lease.checkRemainingMs();
  }

  assertHeld(): void {
    if (this.isHeld) return;
    throw this.#released && !this.lease.checkLost() ? new LockLostError(this.key, 'released') : this.lease.lostError();
  }

  async extend(ttlMs: number = this.lease.ttlMs): Promise<void> {
    try {
      this.assertHeld();
      await this.leases.extend(this.lease, ttlMs);
    } catch (error) {
      await loopTurn(); // or a loop that tries again at once would stop all else
      throw error;
    }
  }

  /** Its call may hold the lock until then, by the clock. Called once. */
  limit(until: number): void {
    this.#limit = until;
    this.leases.limit(this.lease, until);
  }

  release(): Promise<boolean> {
    const release = () => this.#release();
    return (this.#released ??= this.#detaching ? this.#detaching.then(release) : release());
  }

  async detach(options: ParcelOptions): Promise<LockParcel> {
    const detaching = this.#detach(options);
    this.#detaching = detaching.then(ignore, ignore);
    try {
      return await detaching;
    } catch (error) {
      await loopTurn();
      throw error;
    }
  }

  /** The fields that are logged or sent: not its internals. */
  toJSON(): Pick<Lock, 'key' | 'isHeld' | 'remainingMs'> & { fencingToken?: number } {
    const { key, lease, isHeld, remainingMs } = this;
    return { key, fencingToken: lease.fencingToken, isHeld, remainingMs };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #release(): Promise<boolean> {
    // The limit of the call that acquired the lock stays: what it has left behind holds the lock on its behalf.
    if (this.#limit !== undefined && this.grant === 'reentrant') this.leases.liftLimit(this.lease, this.#limit);
    return this.leases.release(this.lease);
  }

  async #detach(options: ParcelOptions): Promise<LockParcel> {
    const ttlMs = checkParcelOptions('detach', options);
    if (this.isOfSet) {
      throw new LockOptionsError(
        `Lock ${quoted(this.key)} cannot be detached. It was acquired together with others: acquire it alone.`,
      );
    }
    this.assertHeld();
    const parcel = await this.leases.detach(this.lease, ttlMs);
    this.#released ??= Promise.resolve(false);
    return parcel;
  }
}

function ignore(): void {}

/** The leases of what a call holds: of one lock, or of several that were acquired at once. */
export function leasesOf(held: LockHandle | { readonly locks: readonly LockHandle[] }): Lease[] {
  return 'locks' in held ? held.locks.map(({ lease }) => lease) : [held.lease];
}
