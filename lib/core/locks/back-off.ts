import { monotonic } from '../time/clock.js';

/** The first pause and the longest one, in milliseconds, on average. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [8, 250];
/** The first pause where the process asks for all locks together, in milliseconds, on average. */
const FIRST_POLL_MS = 2;
/** How long after the end of a lease an attempt surely finds it ended, in milliseconds. */
const AFTER_EXPIRY_MS = 1;

/** The pauses of a line that no message wakes. They grow, each is random, and none goes past the end of the holder's lease. */
export class BackOff {
  #nextMs: number;

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
    return Math.min(pauseMs, untilExpiredMs(remainingMs));
  }
}

/** The pause after an attempt that nobody won: some round trips, by chance, so that one process asks first. */
export function pauseAfterTieMs(attemptMs: number): number {
  return (1 + Math.random() * 8) * Math.max(1, attemptMs);
}

/** The pause after which the lease of the holder has ended, unless it is extended. */
export function untilExpiredMs(remainingMs: number): number {
  return Math.max(0, remainingMs) + AFTER_EXPIRY_MS;
}
