/** The waiting of one call: it ends at its deadline, by the caller's signal, or by an interruption of the service. */
export class Patience {
  readonly #startedAt: number;

  constructor(
    private readonly now: () => number,
    private readonly waitMs: number,
    private readonly signal: AbortSignal | undefined,
    /** Where to leave word how to interrupt it while it waits; undefined: it may not be. */
    private readonly interrupts: Set<(reason: Error) => void> | undefined,
  ) {
    this.#startedAt = now();
    signal?.throwIfAborted();
  }

  get waitedMs(): number {
    return this.now() - this.#startedAt;
  }

  /** Until the deadline; never negative. */
  get remainingMs(): number {
    return Math.max(0, this.waitMs - this.waitedMs);
  }

  /**
   * Waits for one attempt, which settles by itself within `attemptMs`. A call with `waitMs: 0` gives its only attempt
   * that time.
   * @returns undefined when the deadline came first; the attempt is then still under way
   */
  attempt<T>(attempt: Promise<T>, attemptMs: number): Promise<T | undefined> {
    const untilMs = this.waitMs === 0 ? Infinity : this.remainingMs;
    // Nothing can end it before it ends by itself: no timer is needed.
    if (!this.signal && untilMs > attemptMs) return attempt;
    return this.race(attempt, untilMs);
  }

  async pause(ms: number): Promise<void> {
    await this.race(new Promise<never>(() => {}), Math.min(ms, this.remainingMs));
  }

  /**
   * @returns undefined when `ms` are over first
   * @throws the reason of the signal or of the interruption
   */
  race<T>(pending: Promise<T>, ms: number): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const settle = (conclude: () => void) => {
        clearTimeout(timer);
        this.signal?.removeEventListener('abort', abort);
        this.interrupts?.delete(interrupt);
        conclude();
      };
      const interrupt = (reason: Error) => settle(() => reject(reason));
      const abort = () => settle(() => reject(this.signal!.reason));
      const timer = ms === Infinity ? undefined : setTimeout(() => settle(() => resolve(undefined)), ms);
      this.interrupts?.add(interrupt);
      this.signal?.addEventListener('abort', abort, { once: true });
      if (this.signal?.aborted) abort();
      pending.then(
        (value) => settle(() => resolve(value)),
        (error) => settle(() => reject(error)),
      );
    });
  }
}
