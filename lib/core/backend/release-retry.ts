import { outsideOfCalls } from '../time/event-loop.js';

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 3_200;
/** How many items are tried first after a pause: few, so that a store that does not answer costs little. */
const TRIED_FIRST = 100;
/** How many items are tried at once, after the store has confirmed some. */
const TRIED_AT_ONCE = 500;

/**
 * Repeats what a store did not confirm, until the store confirms it or the lock has ended by itself. It does so after growing pauses, and at once
 * when the store can be reached again. One timer serves all items. It sends nothing without a connection, and little while the store does not
 * answer: the many releases of an outage must not cost much while it lasts.
 */
export class ReleaseRetry<Item> {
  /** Each item with the time when it ends by itself. */
  readonly #items = new Map<Item, number>();
  #pauseMs = FIRST_PAUSE_MS;
  #timer?: NodeJS.Timeout;
  #isTrying = false;
  #closed = false;

  /**
   * @param giveBack tries an item once, and calls `done` once, after it has returned
   * @param isReady whether anything can be sent
   */
  constructor(
    private readonly giveBack: (item: Item, done: (isConfirmed: boolean) => void) => void,
    private readonly isReady: () => boolean = () => true,
  ) {}

  get size(): number {
    return this.#items.size;
  }

  find(isIt: (item: Item) => boolean): Item | undefined {
    return [...this.#items.keys()].find(isIt);
  }

  /** @param endsInMs when it ends by itself, in milliseconds from now */
  add(item: Item, endsInMs: number): void {
    if (this.#closed) return;
    this.#items.set(item, performance.now() + endsInMs);
    if (!this.#isTrying && !this.#timer) this.#tryLater();
  }

  /** Tries all items now: the store can be reached again. */
  hurry(): void {
    if (this.#isTrying || this.#items.size === 0) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    outsideOfCalls(() => this.#tryAll());
  }

  /** Tries all items once more. */
  close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#forget();
    const left = this.isReady() ? [...this.#items.keys()] : [];
    this.#items.clear();
    return new Promise((resolve) => this.#try(left, () => resolve()));
  }

  #tryAll(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#forget();
    if (!this.isReady()) this.#goOn();
    else this.#tryFrom([...this.#items.keys()], 0);
  }

  #tryFrom(items: readonly Item[], from: number): void {
    const some = items.slice(from, from + (from === 0 ? TRIED_FIRST : TRIED_AT_ONCE));
    this.#isTrying = true;
    this.#try(some, (confirmed) => {
      this.#isTrying = false;
      if (confirmed > 0 && from + some.length < items.length) this.#tryFrom(items, from + some.length);
      else this.#goOn();
    });
  }

  /** @param done called with the number of items that were confirmed */
  #try(items: readonly Item[], done: (confirmed: number) => void): void {
    let [open, confirmed] = [items.length, 0];
    if (open === 0) done(0);
    for (const item of items) {
      this.giveBack(item, (isConfirmed) => {
        const until = this.#items.get(item);
        this.#items.delete(item);
        if (isConfirmed) confirmed++;
        else if (until !== undefined) this.#items.set(item, until); // behind the items that were not tried yet
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
