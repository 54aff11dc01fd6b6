import { onAbort } from './abort-listener.js';
import type { Interruption } from './interruption.js';

/** What ends the waiting of one call. */
export interface PatienceLimits {
  waitMs: number;
  /** The caller's: its reason is what the call rejects with. */
  signal?: AbortSignal;
  /** The service's: the call rejects with what `refusal` makes. */
  interruption: Interruption;
  refusal: () => Error;
}

/** The waiting of one call: it ends at its deadline, by the caller's signal, or by an interruption of the service. */
export class Patience {
  readonly startedAt: number;

  constructor(
    private readonly now: () => number,
    private readonly limits: PatienceLimits,
  ) {
    this.startedAt = now();
    limits.signal?.throwIfAborted();
  }

  get waitedMs(): number {
    return this.now() - this.startedAt;
  }

  /** Until the deadline; never negative. */
  get remainingMs(): number {
    return Math.max(0, this.limits.waitMs - this.waitedMs);
  }

  /** Whether the call does not wait at all, but tries once. */
  get triesOnce(): boolean {
    return this.limits.waitMs === 0;
  }

  /**
   * Waits for one attempt, which settles by itself within `attemptMs`. A call that tries once gives its only attempt
   * that time.
   * @returns undefined when the deadline came first; the attempt is then still under way
   */
  attempt<T>(attempt: Promise<T>, attemptMs: number): Promise<T | undefined> {
    const untilMs = this.triesOnce ? Infinity : this.remainingMs;
    // Nothing can end it before it ends by itself: no timer is needed.
    if (!this.limits.signal && untilMs > attemptMs) return attempt;
    return this.race(attempt, untilMs);
  }

  async pause(ms: number): Promise<void> {
    await this.race(new Promise<never>(() => {}), Math.min(ms, this.remainingMs));
  }

  /**
   * @returns undefined when `ms` are over first
   * @throws the reason of the signal, or the refusal
   */
  race<T>(pending: Promise<T>, ms: number): Promise<T | undefined> {
    const { signal, interruption, refusal } = this.limits;
    return new Promise((resolve, reject) => {
      const settle = (conclude: () => void) => {
        clearTimeout(timer);
        stopListening?.();
        interruption.waiting.delete(interrupt);
        conclude();
      };
      const interrupt = () => settle(() => reject(refusal()));
      const abort = () => settle(() => reject(signal!.reason));
      const timer = ms === Infinity ? undefined : setTimeout(() => settle(() => resolve(undefined)), ms);
      interruption.waiting.add(interrupt);
      const stopListening = signal && onAbort(signal, abort);
      if (signal?.aborted) abort();
      else if (interruption.happened) interrupt();
      pending.then(
        (value) => settle(() => resolve(value)),
        (error) => settle(() => reject(error)),
      );
    });
  }
}
