import { SUBSCRIBE_LIMIT_MS, type CommandFault, type Subscription, type SubscriptionChange } from './redis-client.js';

/** The longest pause before a subscriber connects again, in milliseconds. */
const LONGEST_PAUSE_MS = 1_000;

/**
 * Learns what becomes of a connection.
 * @param fault why it is closed: it broke, or could not begin in its time. Undefined: it does what it is for
 */
export type Report = (fault?: CommandFault) => void;

/** A connection that listens, until it breaks: a client that makes it again by itself takes too long to notice a break. */
export abstract class ListeningConnection implements Subscription {
  #limit?: NodeJS.Timeout;
  protected isOver = false;

  constructor(private readonly report: Report) {}

  protected abstract faultOf(error: unknown): CommandFault;
  protected abstract disconnect(): void;

  /** It has so long to begin, from now on, in milliseconds. */
  protected limit(limitMs = SUBSCRIBE_LIMIT_MS): void {
    clearTimeout(this.#limit);
    if (!this.isOver) this.#limit = setTimeout(() => this.end(new Error('no answer')), limitMs).unref();
  }

  protected begun(): void {
    clearTimeout(this.#limit);
    if (!this.isOver) this.report();
  }

  protected end(error: unknown): void {
    if (this.isOver) return;
    this.close();
    this.report(this.faultOf(error));
  }

  close(): void {
    this.isOver = true;
    clearTimeout(this.#limit);
    this.disconnect();
  }
}

/** Subscribes to a channel on a connection of its own, and again after each break of it. */
export class Subscriber implements Subscription {
  #connection!: Subscription;
  #attempts = 0;
  #again?: NodeJS.Timeout;

  /** @param connect makes a connection that subscribes */
  constructor(
    private readonly connect: (report: Report) => Subscription,
    private readonly onChange: (change: SubscriptionChange) => void,
  ) {
    this.#open();
  }

  #open(): void {
    this.#connection = this.connect((fault) => {
      if (fault) return this.#over(fault);
      this.#attempts = 0;
      this.onChange('opened');
    });
  }

  #over({ kind, message }: CommandFault): void {
    // Of what the server says while it connects, only this is about the subscription: a right is missing, or it has no such command.
    const isRefused = /^NOPERM.*(subscribe|channel)|^ERR unknown command ['`]subscribe/i.test(message);
    if (kind === 'refused' && isRefused) return this.onChange({ refusal: message });
    const pauseMs = Math.min(50 * ++this.#attempts, LONGEST_PAUSE_MS);
    this.#again = setTimeout(() => this.#open(), pauseMs).unref();
    this.onChange('closed'); // which may close it
  }

  close(): void {
    clearTimeout(this.#again);
    this.#connection.close();
  }
}
