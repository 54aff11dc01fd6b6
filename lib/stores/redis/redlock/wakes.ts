import type { WaitListener } from '../../../core/backend/lock-backend.js';

/** The longest that a ticket woken by a minority waits for further nodes, in milliseconds: the time is random. */
const JITTER_MS = 8;

interface Wake {
  count: number;
  timer: NodeJS.Timeout;
}

/**
 * Each node of a Redlock wakes the first in its own queue. A line that a majority wakes will probably win, and tries at
 * once; one that fewer nodes wake waits for a moment, so that lines woken together do not split the vote.
 */
export class RedlockWakes implements WaitListener {
  readonly #wakes = new Map<string, Wake>();

  constructor(
    private readonly quorum: number,
    private readonly listener: WaitListener,
  ) {}

  /** One node has woken this ticket. */
  onTurn(ticket?: string): void {
    if (ticket === undefined) {
      this.listener.onTurn();
      return;
    }
    let wake = this.#wakes.get(ticket);
    if (!wake) {
      const timer = setTimeout(() => this.#pass(ticket), Math.random() * JITTER_MS).unref();
      this.#wakes.set(ticket, (wake = { count: 0, timer }));
    }
    if (++wake.count === this.quorum) this.#pass(ticket);
  }

  onListening(key: string): void {
    this.listener.onListening(key);
  }

  onTaken(key: string, owner: string): void {
    this.listener.onTaken(key, owner);
  }

  onWarning(message: string): void {
    this.listener.onWarning(message);
  }

  close(): void {
    for (const { timer } of this.#wakes.values()) clearTimeout(timer);
    this.#wakes.clear();
  }

  #pass(ticket: string): void {
    clearTimeout(this.#wakes.get(ticket)?.timer);
    this.#wakes.delete(ticket);
    this.listener.onTurn(ticket);
  }
}
