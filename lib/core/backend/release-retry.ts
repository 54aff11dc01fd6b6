import { outsideOfCalls } from '../../../core/time/event-loop.js';

/** The release of a lock, or of a ticket's place in its queue, that is not confirmed. */
export interface PendingRelease {
  key: string;
  owner: string;
  /** The ticket's place. */
  entry?: string;
  /** How long Redis may keep it, in milliseconds from now: then it has ended by itself. */
  standsMs: number;
  /** As of `Releasing`. */
  keepUntil?: number;
}

/** Gives locks and places back to one server. */
export interface Releaser {
  /** Whether anything can be sent. */
  readonly isReady: boolean;
  /**
   * Tries it once.
   * @param done called once, after this has returned
   */
  giveBack(item: PendingRelease, done: (isConfirmed: boolean) => void): void;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 3_200;
/** How many are tried at a time while the server does not answer. */
const TRIED_AT_ONCE = 500;

/**
 * Retries releases until each is confirmed or has ended by itself: after growing pauses, and at once when the connection is
 * made anew. Nothing is sent without a connection, and little while the server does not answer: releases that piled up when
 * an outage began must not cost anything for as long as it lasts.
 */
export class ReleaseRetry {
  /** Each with the time when it ends by itself. */
  readonly #items = new Map<PendingRelease, number>();
  #pauseMs = FIRST_PAUSE_MS;
  #timer?: NodeJS.Timeout;
  #isTrying = false;
  #closed = false;

  constructor(private readonly releaser: Releaser) {}

  get size(): number {
    return this.#items.size;
  }

  add(item: PendingRelease): void {
    if (this.#closed) return;
    this.#items.set(item, performance.now() + item.standsMs);
    if (!this.#isTrying && !this.#timer) this.#tryLater();
  }

  /** Tries all at once: the server can be reached again. */
  hurry(): void {
    if (this.#isTrying || this.#items.size === 0) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    outsideOfCalls(() => this.#tryAll());
  }

  /** Tries all once more. */
  close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#forget();
    const left = this.releaser.isReady ? [...this.#items.keys()] : [];
    this.#items.clear();
    return new Promise((resolve) => this.#try(left, () => resolve()));
  }

  #tryAll(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#forget();
    if (!this.releaser.isReady) this.#goOn();
    else this.#tryFrom([...this.#items.keys()], 0);
  }

  #tryFrom(items: readonly PendingRelease[], from: number): void {
    const some = items.slice(from, from + TRIED_AT_ONCE);
    this.#isTrying = true;
    this.#try(some, (confirmed) => {
      this.#isTrying = false;
      if (confirmed > 0 && from + some.length < items.length) this.#tryFrom(items, from + some.length);
      else this.#goOn();
    });
  }

  /** @param done called with how many were confirmed */
  #try(items: readonly PendingRelease[], done: (confirmed: number) => void): void {
    let [open, confirmed] = [items.length, 0];
    if (open === 0) done(0);
    for (const item of items) {
      this.releaser.giveBack(item, (isConfirmed) => {
        const until = this.#items.get(item);
        this.#items.delete(item);
        if (isConfirmed) confirmed++;
        else if (until !== undefined) this.#items.set(item, until); // behind those not tried yet
        if (--open === 0) done(confirmed);
      });
    }
  }

  #goOn(): void {
    if (this.#items.size === 0) {
      this.#pauseMs = FIRST_PAUSE_MS;
      return;
    }
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
    this.#tryLater();
  }

  #tryLater(): void {
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#tryAll(), this.#pauseMs)).unref();
  }

  #forget(): void {
    const now = performance.now();
    for (const [item, until] of this.#items) if (until <= now) this.#items.delete(item);
  }
}
