import type { LockBackend, ReleaseOutcome } from '../backend/lock-backend.js';
import { validityMs } from '../time/clock.js';
import type { Lease } from './lease.js';

/**
 * The locks of lost leases that the store may still have. An extension that was given up may still run there, or a clock that was set ahead
 * has ended the lease here too early. Each lock is released once its lease must have ended in the store.
 */
export class LateReleases {
  readonly #timers = new Map<Lease, NodeJS.Timeout>();

  constructor(
    private readonly backend: LockBackend,
    private readonly marginMs: number,
    private readonly now: () => number,
  ) {}

  get size(): number {
    return this.#timers.size;
  }

  /** Whether the store may still have the lock of this owner value. */
  has(owner: string): boolean {
    return [...this.#timers.keys()].some(({ grant }) => grant.owner === owner);
  }

  /** A lock that was held for too long runs on in the store. So its work has time to end before another call gets the lock. */
  add(lease: Lease): void {
    const { ttlMs: extendedMs, provisionalTtlMs = extendedMs } = lease;
    const ttlMs = Math.min(provisionalTtlMs, extendedMs);
    const runsOnMs = lease.lostReason === 'overstayed' ? Math.max(0, lease.runsUntil - this.now()) : 0;
    const timer = setTimeout(
      () => {
        this.#timers.delete(lease);
        this.#release(lease, ignore);
      },
      runsOnMs + ttlMs - validityMs(ttlMs, this.marginMs),
    ).unref();
    this.#timers.set(lease, timer);
  }

  /** Releases a lock now. @returns false when that has happened already: then `done` is not called */
  releaseNow(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    const timer = this.#timers.get(lease);
    if (!timer) return false;
    clearTimeout(timer);
    this.#timers.delete(lease);
    this.#release(lease, done);
    return true;
  }

  /** Releases all locks now, except those that were held for too long: their work may still run, and they end by themselves. */
  end(): void {
    for (const [lease, timer] of this.#timers) {
      clearTimeout(timer);
      if (lease.lostReason !== 'overstayed') this.#release(lease, ignore);
    }
    this.#timers.clear();
  }

  #release({ grant, demands }: Lease, done: (outcome: ReleaseOutcome) => void): void {
    this.backend.release(grant, { keepUntil: demands.keptUntil }, done);
  }
}

/** Ignores the outcome of a release, which the backend repeats. */
function ignore(): void {}
