import { monotonic } from '../time/clock.js';

/** The first pause and the longest one, in milliseconds, on average. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [8, 250];
/** The first pause if the process polls for all locks together, in milliseconds, on average. */
const FIRST_POLL_MS = 2;
/** How long after the end of a lease an attempt surely finds it ended, in milliseconds. */
const AFTER_EXPIRY_MS = 1;
/** A lease that ends within this time, in milliseconds, ends soon. If every answer says so, the store may be wrong. */
const SOON_MS = 8;

/**
 * The pauses of a line that no message wakes. They grow, and each is random. None lasts longer than the holder's lease, unless the store reports
 * again and again that the lease ends soon.
 */
export class BackOff {
  #nextMs: number;
  #afterExpiryMs = AFTER_EXPIRY_MS;

  /** @param pollEveryMs see `LockBackend` */
  constructor(private readonly pollEveryMs = Infinity) {
    this.#nextMs = pollEveryMs === Infinity ? FIRST_PAUSE_MS : FIRST_POLL_MS;
  }

  /** @param remainingMs how long the holder's lease still runs */
  next(remainingMs: number): number {
    const { pollEveryMs } = this;
    const isAligned = this.#nextMs >= pollEveryMs;
    const pauseMs = isAligned ? pollEveryMs - (monotonic() % pollEveryMs) : this.#nextMs * (0.5 + Math.random());
    this.#nextMs = Math.min(LONGEST_PAUSE_MS, pollEveryMs, this.#nextMs * 1.5);
    return Math.min(pauseMs, this.untilExpiredMs(remainingMs));
  }

  /** The pause after which the lease of the holder has ended, unless it is extended. It grows while each answer says that the lease ends soon. */
  untilExpiredMs(remainingMs: number): number {
    if (remainingMs >= SOON_MS) this.#afterExpiryMs = AFTER_EXPIRY_MS;
    const pauseMs = Math.max(0, remainingMs) + this.#afterExpiryMs;
    if (remainingMs < SOON_MS) this.#afterExpiryMs *= 2;
    return pauseMs;
  }
}

/** The pause after an attempt that nobody won: a random number of round trips, so that one process asks first. */
export function pauseAfterTieMs(attemptMs: number): number {
  return (1 + Math.random() * 8) * Math.max(1, attemptMs);
}
