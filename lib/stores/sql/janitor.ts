import { outsideOfCalls } from '../../core/time/event-loop.js';

/** How often all processes together look through the table, in milliseconds. */
export const EVERY_MS = 3_600_000;
/** A process first looks after this time, about: one that lives shorter leaves it to others. */
const FIRST_MS = 60_000;
/** The pause between two pages, in milliseconds: it must not hold up locks. */
const PAUSE_MS = 20;
/** The lock of whoever looks through the table. No key of a user begins like it. */
export const JANITOR_KEY = '}janitor';

/** A page of the table that was looked through. */
export interface SweptPage {
  /** Its last key, as it is stored; undefined: there are no more. */
  readonly last?: string;
}

/**
 * Deletes the rows of locks that nobody has used for long, so that the table does not grow with the number of keys ever used. One
 * process does it for all: it takes a lock for the hour, and does not give that back. A sweep that fails is made up for by the next.
 */
export class Janitor {
  #timer?: NodeJS.Timeout;
  #isClosed = false;

  /**
   * @param takeLock takes the lock for `EVERY_MS`. @returns whether it was granted
   * @param sweep deletes the unused rows of one page. @param behind the last key of the page before
   * @throws whatever went wrong
   */
  constructor(
    private readonly takeLock: () => Promise<boolean>,
    private readonly sweep: (behind: string) => Promise<SweptPage>,
  ) {
    this.#wait(FIRST_MS);
  }

  /** Looks through the table, unless another process has done so within the hour. Never rejects. @returns whether it did */
  async run(): Promise<boolean> {
    try {
      if (!(await this.takeLock())) return false;
      let behind: string | undefined = '';
      while (behind !== undefined && !this.#isClosed) {
        ({ last: behind } = await this.sweep(behind));
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS).unref());
      }
      return true;
    } catch {
      return false; // the database is down: the next sweep finds these rows, too
    }
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #wait(pauseMs: number): void {
    const look = () => void this.run().then(() => this.#isClosed || this.#wait(EVERY_MS));
    this.#timer = outsideOfCalls(() => setTimeout(look, pauseMs * (0.75 + Math.random() / 2))).unref();
  }
}
