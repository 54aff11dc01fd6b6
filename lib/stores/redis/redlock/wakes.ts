import type { WaitListener } from '../../../core/backend/lock-backend.js';

/** The maximum random pause of a ticket that only a minority has woken up, in milliseconds. */
const JITTER_MS = 8;

interface Wake {
  count: number;
  timer: NodeJS.Timeout;
}

/**
 * Each node of a Redlock wakes up the first place in its own queue. A ticket that a majority has woken up will probably win, and tries at
 * once. Other tickets wait for a random moment, so that they do not split the vote.
 */
export class RedlockWakes implements WaitListener {
  readonly #wakes = new Map<string, Wake>();

  constructor(
    private readonly quorum: number,
    private readonly listener: WaitListener,
  ) {}

  /** Called when a node has woken up this ticket. */
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

  onMayBeFree(key: string): void {
    this.listener.onMayBeFree(key);
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
