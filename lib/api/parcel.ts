/**
 * A detached lock, as plain JSON: what `Lock.detach` returns, and `LockService.adopt` takes. **A secret**: whoever has it can take
 * the lock, extend and release it. Send it only on ways that you trust, do not log it, and never take one from an HTTP client
 * unchecked.
 */
export interface LockParcel {
  /** The version of this form. */
  readonly v: 1;
  readonly key: string;
  /** The owner value that the lock has in the store while it is detached: the secret. */
  readonly owner: string;
  /** The fencing token of the holder that detached it. The lock keeps it until it is adopted. */
  readonly fencingToken: number;
  /** How long the lock stands from when it was detached, in milliseconds. */
  readonly ttlMs: number;
}

/** Options of `LockService.extend`. */
export interface ParcelOptions {
  /**
   * How long the lock stands from now on, unless it is adopted or extended, in milliseconds, 20 to 86 400 000. Nothing extends a detached
   * lock by itself.
   */
  ttlMs: number;
}

/** Options of `Lock.detach`. */
export interface DetachOptions extends ParcelOptions {
  /** Shown to others with the lock until it is adopted and released: see `note` of a call. @default the note of the lock */
  note?: string;
}
