import type { Grant, LockBackend, ReleaseOutcome } from '../backend/lock-backend.js';
import { LockUnavailableError, type LockLostReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/events.js';
import { checkTtl } from '../options/call-options.js';
import { validityMs } from '../time/validity.js';
import { Lease } from './lease.js';
import type { LeaseKeeper } from './lock-handle.js';
import { Watchdog } from './watchdog.js';

/** What the leases of a service need of the world, and tell it. */
export interface LeasesDuties {
  backend: LockBackend;
  guardMs: number;
  now: () => number;
  emit: (event: () => LockEvent) => void;
  /**
   * Gives the lock to whoever is next: within this process, or by a release.
   * @param done called with what became of the release
   * @returns whether it was passed on within this process, so that nothing is released
   */
  giveBack: (lease: Lease, done: (outcome: ReleaseOutcome) => void) => boolean;
  onLost: (lease: Lease) => void;
}

/** All that this process holds of one service, at most one lease for each key: kept, given back, or lost. */
export class Leases implements LeaseKeeper {
  readonly #duties: LeasesDuties;
  readonly #watchdog: Watchdog;
  readonly #expire = (lease: Lease) => this.#watchdog.expire(lease);
  /** What is to be released once its lease has ended in Redis, too. */
  readonly #afterwards = new Map<NodeJS.Timeout, Grant>();
  #whenIdle?: () => void;
  #isClosing = false;

  constructor(duties: LeasesDuties) {
    const { backend, now, emit } = duties;
    this.#duties = duties;
    this.#watchdog = new Watchdog({
      now,
      extend: ({ grant, ttlMs }, told) => backend.extend({ grant, ttlMs }, told),
      onLost: (lease, reason) => this.lose(lease, reason),
      onFault: (lease, causes) => emit(() => ({ type: 'extension-failed', causes, ...identity(lease) })),
    });
  }

  /** How much it keeps: nothing unless keys are held, or were lost a moment ago. */
  get size(): number {
    return this.#watchdog.size + this.#afterwards.size;
  }

  /** Whether nothing is held. */
  get isIdle(): boolean {
    return this.#watchdog.size === 0;
  }

  /**
   * Begins to keep what was granted.
   * @param fencingToken one of those of the grant
   * @param ttlMs the one that it was granted for
   * @param extendTo it was granted for a short time: the ttl it is to have from now on
   */
  add(
    grant: Grant,
    fencingToken: number | undefined,
    ttlMs: number,
    sentAt: number,
    kept: boolean,
    extendTo?: number,
  ): Lease {
    const { guardMs, now } = this.#duties;
    const lease = new Lease(grant, fencingToken, ttlMs, kept, sentAt, guardMs, now, this.#expire);
    if (extendTo === undefined) this.#watchdog.watch(lease);
    else this.#watchdog.confirm(lease, extendTo);
    return lease;
  }

  async extend(lease: Lease, ttlMs: number): Promise<void> {
    checkTtl(ttlMs, this.#duties.guardMs);
    const outcome = await this.#watchdog.extend(lease, ttlMs);
    if (outcome.status === 'lost' || lease.state !== 'held') throw lease.lostError();
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', lease.key, outcome.causes);
  }

  /** Finds out whether it is still held, if that can be done without changing when it ends. */
  check(lease: Lease): void {
    if (lease.kept) void this.#watchdog.extend(lease, lease.ttlMs);
  }

  /** Gives back one handle's part; the last one releases. What cannot be released now the backend releases later. */
  release(lease: Lease): Promise<boolean> {
    const { state } = lease;
    if (state === 'unknown') return lease.answered().then(() => this.release(lease));
    const isHeld = state === 'held';
    if (--lease.handles > 0 || !isHeld) return Promise.resolve(isHeld);
    // In this order and at once: nothing is extended, and nobody in line is let in, behind the release.
    this.#watchdog.unwatch(lease);
    lease.release();
    let isPassedOn = false;
    const givenBack = new Promise<ReleaseOutcome>((resolve) => (isPassedOn = this.#duties.giveBack(lease, resolve)));
    this.#tellIdle();
    if (!isPassedOn) return givenBack.then((outcome) => this.#released(lease, outcome));
    this.#released(lease, PASSED_ON);
    return RELEASED;
  }

  #released(lease: Lease, outcome: ReleaseOutcome): boolean {
    const { emit } = this.#duties;
    switch (outcome.status) {
      case 'released':
        emit(() => ({ type: 'released', ...identity(lease) }));
        return true;
      case 'gone':
        // Nobody can tell since when: the work may not have been alone.
        lease.foundGone();
        emit(() => ({ type: 'lost', reason: 'expired', ...identity(lease) }));
        return false;
      case 'unavailable':
        emit(() => ({ type: 'release-failed', causes: outcome.causes, ...identity(lease) }));
        return false;
    }
  }

  lose(lease: Lease, reason: LockLostReason): void {
    if (!lease.lose(reason)) return;
    this.#watchdog.unwatch(lease);
    if (reason === 'shutdown') this.#duties.backend.release(lease.grant, ignore);
    else if (reason !== 'stolen') this.#releaseAfterwards(lease);
    this.#duties.onLost(lease);
    this.#tellIdle();
    this.#duties.emit(() => ({ type: 'lost', reason, ...identity(lease) }));
  }

  closing(lease: Lease): AbortSignal {
    if (this.#isClosing && !lease.closing.aborted) lease.askToEnd(); // it began to close when this was not held
    return lease.closing;
  }

  /** The application begins to close: asks the work under all that is held to end. */
  askToEnd(): void {
    this.#isClosing = true;
    for (const lease of this.#watchdog.leases) lease.askToEnd();
  }

  /** Waits until nothing is held any more. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
      this.#tellIdle();
    });
  }

  /** The application waits for `timeoutMs` for what is held. */
  announceWait(timeoutMs: number): void {
    for (const lease of this.#watchdog.leases)
      this.#duties.emit(() => ({ type: 'closing', timeoutMs, ...identity(lease) }));
  }

  /** Keeps nothing any more: what is still held is lost to the shutdown. */
  end(): void {
    for (const lease of this.#watchdog.leases) this.lose(lease, 'shutdown');
    for (const [timer, grant] of this.#afterwards) {
      clearTimeout(timer);
      this.#duties.backend.release(grant, ignore);
    }
    this.#afterwards.clear();
    this.#watchdog.stop();
  }

  /**
   * Redis may keep the key for longer than the lease ran here: an extension that was given up may still run, and a
   * clock that was set ahead ended the lease too early.
   */
  #releaseAfterwards({ grant, ttlMs: keptTtlMs, provisionalTtlMs = keptTtlMs }: Lease): void {
    const { backend, guardMs } = this.#duties;
    const ttlMs = Math.min(provisionalTtlMs, keptTtlMs);
    const timer = setTimeout(
      () => {
        this.#afterwards.delete(timer);
        backend.release(grant, ignore);
      },
      ttlMs - validityMs(ttlMs, guardMs),
    ).unref();
    this.#afterwards.set(timer, grant);
  }

  #tellIdle(): void {
    if (this.#whenIdle && this.isIdle) this.#whenIdle();
  }
}

const PASSED_ON = { status: 'released' } as const;
const RELEASED = Promise.resolve(true);

/** What became of it is of no interest any more; the backend sees to it. */
function ignore(): void {}

/** What events tell of a lease. */
export function identity({ key, grant, fencingToken }: Lease): { key: string; owner: string; fencingToken?: number } {
  return { key, owner: grant.owner, fencingToken };
}
