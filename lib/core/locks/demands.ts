import { leftMs } from '../time/clock.js';

const NONE: readonly number[] = [];

/** What the calls that hold a lease ask for. Most leases have one call, which asks only for its ttl. */
export class Demands {
  /** The ttl of one of the calls. */
  #ttlMs: number;
  /** The ttl of each other call. */
  #otherTtls?: number[];
  /** When each call with `maxHoldMs` ends at the latest, by the clock of the service. */
  #ends = NONE;
  #overstaysAt = Infinity;
  #keptUntil = 0;
  /** For each call with `holdMs` that may still be refused: until when it wants the store to keep the lock. */
  #requested = NONE;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  /** How many calls hold the lease. It ends when the last of them releases it. */
  get calls(): number {
    return 1 + (this.#otherTtls?.length ?? 0);
  }

  /** The ttl that the lease is extended by. */
  get longestTtlMs(): number {
    return this.#otherTtls ? Math.max(this.#ttlMs, ...this.#otherTtls) : this.#ttlMs;
  }

  /** One more call holds the lease. */
  join(ttlMs: number): void {
    (this.#otherTtls ??= []).push(ttlMs);
  }

  /** A call with this ttl no longer holds the lease, but others do. */
  leave(ttlMs: number): void {
    const others = this.#otherTtls ?? [];
    const at = others.lastIndexOf(ttlMs);
    if (at === -1) this.#ttlMs = others.pop() ?? ttlMs;
    else others.splice(at, 1);
  }

  changeTtl(ttlMs: number, next: number): void {
    this.join(next);
    this.leave(ttlMs);
  }

  /** When a call has held the lease for too long, by the clock of the service; Infinity if no call has to end. */
  get overstaysAt(): number {
    return this.#overstaysAt;
  }

  /** A call has to end by then. */
  endBy(until: number): void {
    this.#ends = [...this.#ends, until];
    this.#overstaysAt = Math.min(this.#overstaysAt, until);
  }

  /** A call that had to end by then has ended. */
  liftEnd(until: number): void {
    this.#ends = without(this.#ends, until);
    this.#overstaysAt = Math.min(...this.#ends);
  }

  /**
   * The store keeps the lock at least until then, even after its work has ended; 0: no longer than the work. By the monotonic clock: a wall
   * clock that is set ahead may end a lease early, which is safe, but must not shorten this time.
   */
  get keptUntil(): number {
    return this.#keptUntil;
  }

  /** How long until `keptUntil`, in milliseconds. */
  get keptForMs(): number {
    return leftMs(this.#keptUntil);
  }

  /** The store keeps the lock until then if all calls that still wait for it get it. */
  get keptAtMostUntil(): number {
    return this.#requested.length === 0 ? this.#keptUntil : Math.max(this.#keptUntil, ...this.#requested);
  }

  /** A call wants the store to keep the lock until then. From now on, no extension may be shorter. */
  requestHold(until: number): void {
    this.#requested = [...this.#requested, until];
  }

  /** The call gets its lock. */
  confirmHold(until: number): void {
    this.cancelHold(until);
    this.#keptUntil = Math.max(this.#keptUntil, until);
  }

  /** The call does not get its lock. */
  cancelHold(until: number): void {
    this.#requested = without(this.#requested, until);
  }
}

function without(times: readonly number[], time: number): readonly number[] {
  const at = times.indexOf(time);
  return times.filter((_, index) => index !== at);
}
