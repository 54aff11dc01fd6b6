import { setTimeout as delay } from 'node:timers/promises';
import { monotonic } from '../time/clock.js';
import { outsideOfCalls } from '../time/event-loop.js';
import { abort } from '../time/notify.js';
import { inTime } from '../time/time-limit.js';
import type { WaitListener, WaitQueue } from './lock-backend.js';

/** The first and the longest pause before an ended watch begins again, in milliseconds. Each pause doubles. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [100, 3_200];
/** How long a watch may take until it yields `undefined`, in milliseconds. */
const BEGIN_LIMIT_MS = 10_000;
/** The watch restarts if a wake-up is missing and the watch has yielded nothing for this time, in milliseconds. */
const SILENT_MS = 10_000;
/** After this number of keys it pauses for a millisecond: a watch that never stops yielding would block the process. */
const KEYS_AT_ONCE = 100;
/** The pause after waking all waiting calls, in milliseconds: otherwise a watch could wake them again and again. */
const WAKE_PAUSE_MS = 20;

/** The watch of a store. When it yields a key, all calls that wait for this lock ask again: there is no order. */
export class WatchedLocks implements WaitQueue {
  readonly handsOver = false;
  readonly keepsPlaces = false;
  readonly #closing = new AbortController();
  /** Ends the current watch. */
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

  /** The connection of the store may have broken unnoticed. */
  checkListening(): void {
    if (this.#isOpen && monotonic() - this.#heardAt > SILENT_MS) this.#endRound();
  }

  leave(): void {
    // The store does not know which processes wait.
  }

  /** Ends the watch, and waits for its end up to a time limit, in milliseconds. */
  async close(limitMs: number): Promise<void> {
    this.#closing.abort();
    this.#endRound();
    await inTime(this.#watching, limitMs, () => undefined);
  }

  #endRound(): void {
    this.#isOpen = false;
    abort(this.#round, undefined);
  }

  /** Begins the watch again whenever it has ended. If a watch ignores its signal, no second one begins. */
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
      } else if (pauseMs > FIRST_PAUSE_MS) this.#warn(listener, problem); // not after the first pause, because a short break is not a problem
      this.#endRound();
      if (openedAt < Infinity) listener.onTurn(); // from now on waiting calls ask again after pauses
      await delay(pauseMs, undefined, { ref: false, signal: closing }).catch(() => {});
    }
  }

  /** @throws what the watch throws; TypeError if it yields neither a key nor undefined */
  async #hear(listener: WaitListener, signal: AbortSignal, opened: () => void): Promise<void> {
    let count = 0;
    for await (const key of this.watch(signal)) {
      if (signal.aborted) return;
      this.#heardAt = monotonic();
      if (key === undefined) {
        this.#isOpen = true;
        opened();
        listener.onTurn();
      } else if (typeof key === 'string') listener.onMayBeFree(key);
      else throw new TypeError(`it must yield keys, or undefined: got ${key === null ? 'null' : typeof key}`);
      if (++count % KEYS_AT_ONCE === 0) await delay(1);
      else if (key === undefined && count > 1) await delay(WAKE_PAUSE_MS);
    }
  }

  #warn(listener: WaitListener, problem: string): void {
    if (this.#wasWarned) return;
    this.#wasWarned = true;
    listener.onWarning(
      `The store ${this.name} does not report which locks are free: ${problem}. Waiting calls poll instead.`,
    );
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
