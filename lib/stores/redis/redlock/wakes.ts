/** The longest that a ticket woken by a minority waits for further nodes, in milliseconds: the time is random. */
const JITTER_MS = 8;

interface Wake {
  count: number;
  timer: NodeJS.Timeout;
}

/**
 * Each node of a Redlock wakes the first in its own queue. A bid that a majority wakes will probably win, and tries at
 * once; one that fewer nodes wake waits for a moment, so that bids woken together do not split the vote.
 */
export class RedlockWakes {
  readonly #wakes = new Map<string, Wake>();

  constructor(
    private readonly quorum: number,
    private readonly wake: (ticket: string) => void,
  ) {}

  /** One node has woken this ticket. */
  note(ticket: string): void {
    let wake = this.#wakes.get(ticket);
    if (!wake) {
      const timer = setTimeout(() => this.#pass(ticket), Math.random() * JITTER_MS).unref();
      this.#wakes.set(ticket, (wake = { count: 0, timer }));
    }
    if (++wake.count === this.quorum) this.#pass(ticket);
  }

  close(): void {
    for (const { timer } of this.#wakes.values()) clearTimeout(timer);
    this.#wakes.clear();
  }

  #pass(ticket: string): void {
    clearTimeout(this.#wakes.get(ticket)?.timer);
    this.#wakes.delete(ticket);
    this.wake(ticket);
  }
}
