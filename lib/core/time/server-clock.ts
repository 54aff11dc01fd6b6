/** How fast two clocks may drift apart: 200 ppm, as microseconds in each millisecond. */
const DRIFT_US_PER_MS = 0.2;
const FRESH_MS = 1_000;

/**
 * The clock of a server, estimated from its answers. The server reads its clock after a command was sent, and before the answer arrives. So each
 * answer gives an interval, as long as the round trip, for the server's lead over the monotonic clock. Apart from the drift, the lead lies in all
 * of these intervals (Marzullo and Owicki, 1983). So the error is at most half of the shortest round trip. If the intervals do not overlap, the
 * clock was set, or another server answers: then the estimate starts again.
 */
export class ServerClock {
  /** The bounds of the lead of the server's clock, in microseconds. */
  #low = -Infinity;
  #high = Infinity;
  #learnedAt = -Infinity;

  /**
   * Learns from an answer.
   * @param serverUs the time that the server read, in microseconds
   * @param sentAt when the command was sent, by the monotonic clock in milliseconds
   * @param receivedAt when the answer arrived
   */
  learn(serverUs: number, sentAt: number, receivedAt: number): void {
    const [low, high] = [serverUs - receivedAt * 1_000, serverUs - sentAt * 1_000];
    const driftUs = Math.max(0, receivedAt - this.#learnedAt) * DRIFT_US_PER_MS;
    this.#low = Math.max(low, this.#low - driftUs);
    this.#high = Math.min(high, this.#high + driftUs);
    if (this.#low > this.#high) [this.#low, this.#high] = [low, high];
    this.#learnedAt = receivedAt;
  }

  /** Whether the last answer is at most a second old. @param now by the monotonic clock, in milliseconds */
  isFresh(now: number): boolean {
    return now - this.#learnedAt < FRESH_MS;
  }

  /** The error bound, in microseconds; undefined before the first answer. */
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
