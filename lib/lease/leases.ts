import type { Claim, LockBackend } from '../backends/lock-backend.js';
import { LockUnavailableError, type LockLostReason } from '../errors.js';
import type { LockEvent } from '../events.js';
import { checkTtl } from '../resolve-options.js';
import { Lease, validityMs } from './lease.js';
import type { LeaseKeeper } from './lock-handle.js';
import { Watchdog } from './watchdog.js';

/** What the leases of a service need of the world, and tell it. */
export interface LeasesDuties {
  backend: LockBackend;
  guardMs: number;
  now: () => number;
  emit: (event: () => LockEvent) => void;
  /** The key is not held by this process any more: called once for each lease, before the release is confirmed. */
  onEnd: (key: string) => void;
}

/** All that this process holds of one service, at most one lease for each key: kept, given back, or lost. */
export class Leases implements LeaseKeeper {
  readonly #duties: LeasesDuties;
  readonly #leases = new Map<string, Lease>();
  readonly #watchdog: Watchdog;
  #whenIdle?: () => void;

  constructor(duties: LeasesDuties) {
    const { backend, now, emit } = duties;
    this.#duties = duties;
    this.#watchdog = new Watchdog({
      now,
      extend: (lease) => backend.extend(lease.claim),
      onLost: (lease, reason) => this.lose(lease, reason),
      onFault: (lease, causes) => emit(() => ({ type: 'extension-failed', causes, ...identity(lease) })),
    });
  }

  get(key: string): Lease | undefined {
    return this.#leases.get(key);
  }

  /** Begins to keep what was granted. */
  add(claim: Claim, fencingToken: number, sentAt: number, kept: boolean): Lease {
    const { guardMs, now } = this.#duties;
    const lease = new Lease(claim, fencingToken, kept, sentAt, guardMs, now, (late) => this.#watchdog.expire(late));
    this.#leases.set(claim.key, lease);
    this.#watchdog.watch(lease);
    return lease;
  }

  async extend(lease: Lease, ttlMs: number): Promise<void> {
    checkTtl(ttlMs, this.#duties.guardMs);
    const outcome = await this.#watchdog.extend(lease, ttlMs);
    if (outcome.status === 'extended' && lease.state === 'held') return;
    if (outcome.status === 'unavailable') throw LockUnavailableError.from('extended', lease.claim.key, outcome.causes);
    throw lease.lostError();
  }

  /** Gives back one handle's part; the last one releases. What cannot be released now the backend releases later. */
  async release(lease: Lease): Promise<boolean> {
    if (--lease.handles > 0) return true;
    if (lease.state !== 'held') return false;
    // In this order and at once: nothing is extended, and nobody in line is let in, behind the release.
    this.#watchdog.unwatch(lease);
    lease.release();
    const releasing = this.#duties.backend.release(lease.claim);
    this.#forget(lease);
    const outcome = await releasing;
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
    if (reason === 'shutdown') void this.#duties.backend.release(lease.claim);
    else if (reason === 'unavailable' || reason === 'stalled') this.#releaseAfterwards(lease);
    this.#forget(lease);
    this.#duties.emit(() => ({ type: 'lost', reason, ...identity(lease) }));
  }

  /** Waits until nothing is held any more; what still is after `timeoutMs` is lost to the shutdown. */
  async drain(timeoutMs: number): Promise<void> {
    if (this.#leases.size > 0) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
        timer = setTimeout(resolve, timeoutMs);
      });
      clearTimeout(timer);
    }
    for (const lease of [...this.#leases.values()]) this.lose(lease, 'shutdown');
  }

  stop(): void {
    this.#watchdog.stop();
  }

  /** An extension that was given up may still run: it would keep the key for one more ttl. */
  #releaseAfterwards(lease: Lease): void {
    const { backend, guardMs } = this.#duties;
    const untilExpiryMs = lease.ttlMs - validityMs(lease.ttlMs, guardMs);
    setTimeout(() => void backend.release(lease.claim), untilExpiryMs).unref();
  }

  #forget(lease: Lease): void {
    this.#leases.delete(lease.claim.key);
    this.#duties.onEnd(lease.claim.key);
    if (this.#leases.size === 0) this.#whenIdle?.();
  }
}

/** What events tell of a lease. */
export function identity(lease: Lease): { key: string; owner: string; fencingToken: number } {
  return { key: lease.claim.key, owner: lease.claim.owner, fencingToken: lease.fencingToken };
}
