/**
 * A parcel: a detached lock that can be passed as JSON. `Lock.detach` returns it, and `LockService.adopt` takes it. **It is a
 * secret**: anyone who has it can adopt, extend and release the lock. Send it only over channels that you trust, do not log it, and
 * never accept one from an HTTP client unchecked.
 */
export interface LockParcel {
  /** The version of this format. */
  readonly v: 1;
  readonly key: string;
  /** The owner value of the detached lock in the store: the secret. */
  readonly owner: string;
  /** The fencing token of the holder that detached the lock. The lock keeps it until it is adopted. */
  readonly fencingToken: number;
  /** Milliseconds that the lock remains valid after it was detached. */
  readonly ttlMs: number;
}

/** Options of `LockService.extend`. */
export interface ParcelOptions {
  /**
   * Time that the detached lock remains valid unless it is adopted or extended, in milliseconds, 20 to 86 400 000. Nothing extends
   * it automatically.
   */
  ttlMs: number;
}

/** Options of `Lock.detach`. */
export interface DetachOptions extends ParcelOptions {
  /** A note for people, shown until the lock is adopted and released: see `note` of a call. @default the note of the lock */
  note?: string;
}
