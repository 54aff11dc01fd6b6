/** A lock, or the place of a ticket in its queue, to be given back. */
export interface PendingRelease {
  key: string;
  owner: string;
  /** The ticket's place. */
  entry?: string;
  /** For how long Redis may have it, in milliseconds from now: then it has ended by itself. */
  standsMs: number;
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
/** While the server does not answer, so many are tried at a time. */
const TRIED_AT_ONCE = 500;

/**
 * What could not be given back is tried again until that is confirmed, or until it has ended by itself: after pauses that grow,
 * and at once when the connection was made anew. While there is no connection nothing is sent, and while the server does not
 * answer little is: what piled up when an outage began must not cost anything for as long as that lasts.
 */
export class ReleaseRetry {
  /** With the time when it has ended. */
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
    if (!this.#isTrying) this.#timer ??= setTimeout(() => this.#tryAll(), this.#pauseMs).unref();
  }

  /** Tries all at once: the server can be reached again. */
  hurry(): void {
    if (this.#isTrying || this.#items.size === 0) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#tryAll();
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
        else if (until !== undefined) this.#items.set(item, until); // behind those that were not tried
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
    this.#timer = setTimeout(() => this.#tryAll(), this.#pauseMs).unref();
  }

  #forget(): void {
    const now = performance.now();
    for (const [item, until] of this.#items) if (until <= now) this.#items.delete(item);
  }
}
