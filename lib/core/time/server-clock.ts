/** How fast two clocks may drift apart: 200 ppm, as microseconds in each millisecond. */
const DRIFT_US_PER_MS = 0.2;
const FRESH_MS = 1_000;

/**
 * The clock of a server, estimated from its answers. The server read it after a command was sent and before the answer was here: so how
 * far it is ahead of the monotonic clock lies in an interval as long as the round trip, and in those of all other answers (Marzullo and
 * Owicki, 1983), but for the drift. The error is half of the best round trip, at most. Where the intervals do not meet the
 * clock was set, or another server answers: then it is learned anew.
 */
export class ServerClock {
  /** By how much the clock of the server is ahead, in microseconds: at least, and at most. */
  #low = -Infinity;
  #high = Infinity;
  #learnedAt = -Infinity;

  /**
   * Learns from an answer.
   * @param serverUs the time that the server read, in microseconds
   * @param sentAt when the command was sent, by the monotonic clock in milliseconds
   * @param receivedAt when the answer was here
   */
  learn(serverUs: number, sentAt: number, receivedAt: number): void {
    const [low, high] = [serverUs - receivedAt * 1_000, serverUs - sentAt * 1_000];
    const driftUs = Math.max(0, receivedAt - this.#learnedAt) * DRIFT_US_PER_MS;
    this.#low = Math.max(low, this.#low - driftUs);
    this.#high = Math.min(high, this.#high + driftUs);
    if (this.#low > this.#high) [this.#low, this.#high] = [low, high];
    this.#learnedAt = receivedAt;
  }

  /** Whether it was learned within the last second. @param now by the monotonic clock, in milliseconds */
  isFresh(now: number): boolean {
    return now - this.#learnedAt < FRESH_MS;
  }

  /** How wrong it may be, in microseconds; undefined before the first answer. */
  get errorUs(): number | undefined {
    return this.#high === Infinity ? undefined : (this.#high - this.#low) / 2;
  }

  /** The time of the server at a time of the monotonic clock, in microseconds; undefined before the first answer. */
  at(monotonicMs: number): number | undefined {
    return this.#high === Infinity ? undefined : Math.round(monotonicMs * 1_000 + this.#aheadUs);
  }

  /** The time of the monotonic clock at a time of the server, in milliseconds; undefined before the first answer. */
  monotonicAt(serverUs: number): number | undefined {
    return this.#high === Infinity ? undefined : (serverUs - this.#aheadUs) / 1_000;
  }

  get #aheadUs(): number {
    return (this.#low + this.#high) / 2;
  }
}
