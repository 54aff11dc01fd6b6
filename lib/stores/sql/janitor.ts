import { outsideOfCalls } from '../../core/time/event-loop.js';

/** The time between two sweeps of all processes together, in milliseconds. */
export const EVERY_MS = 3_600_000;
/** The approximate time before the first sweep of a process, in milliseconds. Short-lived processes leave sweeps to others. */
const FIRST_MS = 60_000;
/** The pause between two pages, in milliseconds, so that sweeps do not delay locks. */
const PAUSE_MS = 20;
/** The key of the lock for sweeps. No key of a user begins like this. */
export const JANITOR_KEY = '}janitor';

export interface SweptPage {
  /** Its last stored key; undefined if there are no more pages. */
  readonly last?: string;
}

/**
 * Deletes rows of locks that have been unused for a long time, so that the table does not grow with every new key. One process sweeps
 * for all: it holds a lock for the whole hour. If a sweep fails, the next one deletes the same rows.
 */
export class Janitor {
  #timer?: NodeJS.Timeout;
  #isClosed = false;

  /**
   * @param takeLock acquires the lock for `EVERY_MS`. @returns whether it was granted
   * @param sweep deletes the unused rows of one page. @param behind the last key of the previous page @throws when it failed
   */
  constructor(
    private readonly takeLock: () => Promise<boolean>,
    private readonly sweep: (behind: string) => Promise<SweptPage>,
  ) {
    this.#wait(FIRST_MS);
  }

  /** Sweeps the table, unless another process has done so within the hour. Never rejects. @returns whether it swept the whole table */
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
      return false; // the database is down, and the next sweep deletes these rows
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
