import { setTimeout as delay } from 'node:timers/promises';
import { monotonic } from '../time/clock.js';
import { outsideOfCalls } from '../time/event-loop.js';
import { abort } from '../time/notify.js';
import { inTime } from '../time/time-limit.js';
import type { WaitListener, WaitQueue } from './lock-backend.js';

/** The pause before a watch that has ended is begun again, in milliseconds. Each further pause doubles. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [100, 3_200];
/** How long a watch may take until it misses no lock, in milliseconds. */
const BEGIN_LIMIT_MS = 10_000;
/** A watch that has yielded nothing for so long is begun again when a wake-up did not come, in milliseconds. */
const SILENT_MS = 10_000;
/** After so many keys there is a pause of a millisecond: a watch that yields without end would keep the process busy. */
const KEYS_AT_ONCE = 100;
/** The pause after all calls that wait were woken again, in milliseconds: a watch that goes on like that would have them ask without end. */
const WAKE_PAUSE_MS = 20;

/** The watch of a store: wakes the calls that wait for a lock when it yields the key. All of them ask again, as there is no order. */
export class WatchedLocks implements WaitQueue {
  readonly handsOver = false;
  readonly keepsPlaces = false;
  readonly #closing = new AbortController();
  /** Ends the present watch. */
  #round = new AbortController();
  #watching?: Promise<void>;
  #isOpen = false;
  #heardAt = 0;
  #wasWarned = false;

  /** @param name of the store, for warnings */
  constructor(
    private readonly name: string,
    private readonly watch: (signal: AbortSignal) => AsyncIterable<unknown>,
  ) {}

  isListening(): boolean {
    return this.#isOpen;
  }

  listen(_key: string, listener: WaitListener): void {
    this.#watching ??= outsideOfCalls(() => this.#keepWatching(listener));
  }

  /** A connection may be gone without a word. */
  checkListening(): void {
    if (this.#isOpen && monotonic() - this.#heardAt > SILENT_MS) this.#endRound();
  }

  leave(): void {
    // The store does not know who waits.
  }

  /** Ends the watch, and waits for that up to a time limit, in milliseconds. */
  async close(limitMs: number): Promise<void> {
    this.#closing.abort();
    this.#endRound();
    await inTime(this.#watching, limitMs, () => undefined);
  }

  #endRound(): void {
    this.#isOpen = false;
    abort(this.#round, undefined);
  }

  /** Begins the watch again whenever it has ended. One that ignores its signal is not begun twice. */
  async #keepWatching(listener: WaitListener): Promise<void> {
    const closing = this.#closing.signal;
    for (let pauseMs = FIRST_PAUSE_MS; !closing.aborted; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      const { signal } = (this.#round = new AbortController());
      const limit = setTimeout(() => {
        this.#warn(listener, `it has not yielded undefined within ${BEGIN_LIMIT_MS} ms`);
        this.#endRound();
      }, BEGIN_LIMIT_MS).unref();
      let openedAt = Infinity;
      const opened = () => {
        clearTimeout(limit);
        openedAt = Math.min(openedAt, monotonic());
      };
      const problem = await this.#hear(listener, signal, opened).then(() => 'it has ended', messageOf);
      clearTimeout(limit);
      if (closing.aborted) return;
      if (monotonic() - openedAt >= LONGEST_PAUSE_MS) {
        pauseMs = FIRST_PAUSE_MS;
        this.#wasWarned = false;
      } else if (pauseMs > FIRST_PAUSE_MS) this.#warn(listener, problem); // a short break passes by itself
      this.#endRound();
      if (openedAt < Infinity) listener.onTurn(); // from now on calls that wait ask again after pauses
      await delay(pauseMs, undefined, { ref: false, signal: closing }).catch(() => {});
    }
  }

  /** @throws whatever the watch throws; TypeError if it yields something else */
  async #hear(listener: WaitListener, signal: AbortSignal, opened: () => void): Promise<void> {
    let count = 0;
    for await (const key of this.watch(signal)) {
      if (signal.aborted) return;
      this.#heardAt = monotonic();
      if (key === undefined) {
        this.#isOpen = true;
        opened();
        listener.onTurn();
      } else if (typeof key === 'string') listener.onListening(key);
      else throw new TypeError(`it must yield keys, or undefined: got ${key === null ? 'null' : typeof key}`);
      if (++count % KEYS_AT_ONCE === 0) await delay(1);
      else if (key === undefined && count > 1) await delay(WAKE_PAUSE_MS);
    }
  }

  #warn(listener: WaitListener, problem: string): void {
    if (this.#wasWarned) return;
    this.#wasWarned = true;
    listener.onWarning(
      `The store ${this.name} does not tell which locks are free: ${problem}. Calls that wait ask again after pauses.`,
    );
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
