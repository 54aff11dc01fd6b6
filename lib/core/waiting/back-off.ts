const FIRST_MS = 8;
const LONGEST_MS = 250;
/** A wait at the end of the holder's lease must find it ended. */
const AFTER_EXPIRY_MS = 1;

/**
 * How long the bid of a process waits before it asks again: jittered, growing, never past the end of the
 * holder's lease.
 */
export class BackOff {
  #nextMs = FIRST_MS;

  /**
   * @param remainingMs how long the holder's lease runs; undefined after a split vote, when there is no holder
   * @param attemptMs how long the attempt took: of a split vote the bids back off for some round trips
   */
  next(remainingMs: number | undefined, attemptMs: number): number {
    if (remainingMs === undefined) return (1 + Math.random() * 8) * Math.max(1, attemptMs);
    const delayMs = this.#nextMs * (0.5 + Math.random());
    this.#nextMs = Math.min(LONGEST_MS, this.#nextMs * 1.5);
    return Math.min(delayMs, Math.max(0, remainingMs) + AFTER_EXPIRY_MS);
  }
}
