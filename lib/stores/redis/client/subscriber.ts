import { SUBSCRIBE_LIMIT_MS, type CommandFault, type Subscription, type SubscriptionChange } from './redis-client.js';

/** The longest pause before a subscriber connects again, in milliseconds. */
const LONGEST_PAUSE_MS = 1_000;

/**
 * Reports the state of a connection that listens.
 * @param fault why it closed: it broke, or did not begin in time. Undefined if it listens now
 */
export type Report = (fault?: CommandFault) => void;

/** A connection that listens until it breaks. The reconnection of clients would notice a break too late. */
export abstract class ListeningConnection implements Subscription {
  #limit?: NodeJS.Timeout;
  protected isOver = false;

  constructor(private readonly report: Report) {}

  protected abstract faultOf(error: unknown): CommandFault;
  protected abstract disconnect(): void;

  /** Limits the time until it listens, from now on, in milliseconds. */
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

/** Subscribes to a channel on a separate connection, and again after each break. */
export class Subscriber implements Subscription {
  #connection!: Subscription;
  #attempts = 0;
  #again?: NodeJS.Timeout;

  /** @param connect opens a connection that subscribes */
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
    // Only these refusals are about the subscription: a right is missing, or the command does not exist.
    const isRefused = /^NOPERM.*(subscribe|channel)|^ERR unknown command ['`]subscribe/i.test(message);
    if (kind === 'refused' && isRefused) return this.onChange({ refusal: message });
    const pauseMs = Math.min(50 * ++this.#attempts, LONGEST_PAUSE_MS);
    this.#again = setTimeout(() => this.#open(), pauseMs).unref();
    this.onChange('closed'); // the listener may close this subscriber
  }

  close(): void {
    clearTimeout(this.#again);
    this.#connection.close();
  }
}
