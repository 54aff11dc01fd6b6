import { inspect } from 'node:util';
import { LockLostError, LockOptionsError } from '../../api/errors.js';
import { yieldToEventLoop } from '../time/event-loop.js';
import type { GuardStatement } from '../backend/lock-backend.js';
import type { LockGrant } from '../../api/events.js';
import type { Lock } from '../../api/lock.js';
import type { DetachOptions, LockParcel } from '../../api/parcel.js';
import { quoted } from '../../api/printable.js';
import { checkParcelOptions } from '../options/parcel.js';
import type { LockEngine } from './lock-engine.js';
import type { Lease } from './lease.js';
import type { Leases } from './leases.js';

/** The lock of one call. Nested calls share a lease, and each of them has its own handle. */
export class LockHandle implements Lock {
  /** Whether its call acquired several locks at once. */
  isPartOfSet = false;
  #released?: Promise<boolean>;
  /** When its call ends at the latest, by the clock of the service. */
  #endsBy?: number;
  /** Settles when all attempts to detach or downgrade the lock have ended. */
  #changing?: Promise<void>;
  /** The handle of the same call after it has downgraded the lock. */
  #downgradedTo?: LockHandle;
  /** The ttl that its call asks for, in milliseconds. An object, because `unreleased` must keep it without the handle. */
  readonly #asks: { ttlMs: number };
  #isWatched = false;

  constructor(
    private readonly own: Lease,
    private readonly engine: LockEngine,
    /** How its call got the lock. */
    readonly origin: LockGrant | 'reentrant' = 'reentrant',
    asksMs = own.ttlMs,
  ) {
    this.#asks = { ttlMs: asksMs };
  }

  /** Makes one more handle of a lease. @param ttlMs the ttl of its call, which does not make the lease longer */
  static another(lease: Lease, engine: LockEngine, ttlMs = lease.ttlMs): LockHandle {
    const asksMs = Math.min(ttlMs, lease.ttlMs);
    lease.demands.join(asksMs);
    return new LockHandle(lease, engine, 'reentrant', asksMs);
  }

  /**
   * The statement by which a transaction keeps the locks of one service until it ends; undefined if their store has none.
   * @param handles at least one
   * @param passedOnForMs see `LockBackend`; also Infinity if the caller checks that itself
   */
  static guard(handles: readonly LockHandle[], passedOnForMs: number): GuardStatement | undefined {
    const leases = handles.map(({ lease }) => lease);
    return handles[0]!.engine.leases.guard(leases, passedOnForMs);
  }

  /** How long ago this process last passed one of the locks on, in milliseconds; Infinity: it passed none on. */
  static passedOnForMs(handles: readonly LockHandle[]): number {
    return Math.min(...handles.map(({ lease }) => lease.passedOnForMs));
  }

  /** The lease that its call has now: another one after it has downgraded the lock. */
  get lease(): Lease {
    return this.own.downgradedTo ?? this.own;
  }

  /** The handle that its call has now. */
  get current(): LockHandle {
    return this.#downgradedTo ?? this;
  }

  get key(): string {
    return this.own.key;
  }

  /** For permits it is `permits`, although its type does not say so: callers get them as a `Permit`, without a mode. */
  get mode(): Lock['mode'] {
    return (this.own.grant.hold?.mode ?? 'exclusive') as Lock['mode'];
  }

  get owner(): string {
    return this.own.grant.owner;
  }

  get fencingToken(): number {
    const { fencingToken } = this.own;
    if (fencingToken !== undefined) return fencingToken;
    const what = this.permits === undefined ? `Lock ${quoted(this.key)} has` : `Permits of ${quoted(this.key)} have`;
    const why =
      this.permits === undefined
        ? 'its store creates none'
        : 'several calls hold them at the same time. Use a lock instead';
    throw new LockOptionsError(`${what} no fencing token: ${why}.`);
  }

  /** The number of permits; undefined for a lock. */
  get permits(): number | undefined {
    const { hold } = this.own.grant;
    return hold?.mode === 'permits' ? hold.permits : undefined;
  }

  get signal(): AbortSignal {
    return this.own.checkSignal();
  }

  get closing(): AbortSignal {
    return this.engine.leases.closingSignal(this.own);
  }

  get isReleased(): boolean {
    return this.#released !== undefined || this.#downgradedTo?.isReleased === true;
  }

  get isHeld(): boolean {
    return !this.#released && this.own.checkHeld();
  }

  get remainingMs(): number {
    return this.#released ? 0 : this.own.checkRemainingMs();
  }

  assertHeld(): void {
    if (this.isHeld) return;
    throw this.#released && !this.own.checkLost() ? new LockLostError(this.key, 'released') : this.own.lostError();
  }

  async extend(ttlMs: number = this.#asks.ttlMs): Promise<void> {
    try {
      this.assertHeld();
      await this.engine.leases.extend(this.own, ttlMs, () => this.#ask(ttlMs));
    } catch (error) {
      await yieldToEventLoop(); // otherwise a loop that tries again at once would block the event loop
      throw error;
    }
  }

  /** Its call may hold the lock until then, by the clock of the service. Called once. */
  endBy(until: number): void {
    this.#endsBy = until;
    this.engine.leases.endBy(this.own, until);
  }

  /** Its caller has to release it. If its handle becomes garbage before, the library logs a warning. */
  watch(): void {
    this.#isWatched = true;
    if (this.own.unregistered) this.register();
    else this.own.unregistered = this;
  }

  /** Called with the first extension of its lease: without extensions the lease ends by itself. */
  register(): void {
    unreleased.register(this, { lease: this.own, leases: this.engine.leases, asks: this.#asks }, this);
  }

  release(): Promise<boolean> {
    this.own.checkState(); // a listener of its signal may release the lock
    if (this.own.unregistered === this) this.own.unregistered = undefined;
    else if (this.#isWatched) unreleased.unregister(this);
    const release = () => this.#downgradedTo?.release() ?? this.#release();
    return (this.#released ??= this.#changing ? this.#changing.then(release) : release());
  }

  detach(options: DetachOptions): Promise<LockParcel> {
    return this.#change(this.#detach(options));
  }

  downgrade(): Promise<LockHandle> {
    return this.#change(this.#downgrade());
  }

  /** The fields for logs and messages, without internals. */
  toJSON(): Pick<Lock, 'key' | 'mode' | 'isHeld' | 'remainingMs'> & { fencingToken?: number; permits?: number } {
    const { key, own, mode, permits, isHeld, remainingMs } = this;
    return { key, mode, fencingToken: own.fencingToken, permits, isHeld, remainingMs };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Makes a release wait until the change has ended. */
  async #change<T>(changing: Promise<T>): Promise<T> {
    this.#changing = Promise.allSettled([this.#changing, changing]).then(ignore);
    try {
      return await changing;
    } catch (error) {
      await yieldToEventLoop();
      throw error;
    }
  }

  #ask(ttlMs: number): void {
    if (this.isReleased) return; // while this extension waited for another one
    this.own.demands.changeTtl(this.#asks.ttlMs, ttlMs);
    this.#asks.ttlMs = ttlMs;
  }

  #release(): Promise<boolean> {
    // The time limit of the call that acquired the lock stays: nested calls that still run hold the lock for that call.
    if (this.#endsBy !== undefined && this.origin === 'reentrant') this.engine.leases.liftEnd(this.own, this.#endsBy);
    return this.engine.leases.release(this.own, this.#asks.ttlMs);
  }

  /** @throws LockOptionsError for one of several locks that were acquired at once */
  #refuseSet(done: string): void {
    if (!this.isPartOfSet) return;
    throw new LockOptionsError(
      `Lock ${quoted(this.key)} cannot be ${done}. It was acquired together with others: acquire it alone.`,
    );
  }

  async #detach(options: DetachOptions): Promise<LockParcel> {
    const checked = checkParcelOptions('detach', options);
    this.#refuseSet('detached');
    this.assertHeld();
    const parcel = await this.engine.transfers.detach(this.own, checked);
    this.#released ??= Promise.resolve(false);
    return parcel;
  }

  async #downgrade(): Promise<LockHandle> {
    this.#refuseSet('downgraded');
    this.assertHeld();
    this.#downgradedTo = new LockHandle(await this.engine.transfers.downgrade(this.own), this.engine, this.origin);
    if (this.#isWatched) this.#downgradedTo.watch();
    return this.#downgradedTo;
  }
}

/** The handles that callers have to release themselves. The value that it keeps must not refer to the handle. */
const unreleased = new FinalizationRegistry<{ lease: Lease; leases: Leases; asks: { ttlMs: number } }>(
  ({ lease, leases, asks }) => leases.abandon(lease, asks.ttlMs),
);

function ignore(): void {}

/** The leases of a call: of its lock, or of all locks that it acquired at once. */
export function leasesOf(held: LockHandle | { readonly locks: readonly LockHandle[] }): Lease[] {
  return 'locks' in held ? held.locks.map(({ lease }) => lease) : [held.lease];
}
