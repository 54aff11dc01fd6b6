import type { NodeError } from '../errors.js';

/** What the one before found: Redis did not serve an attempt that began then. */
export interface Fault {
  causes: readonly NodeError[];
  attemptedAt: number;
}

type Take = (fault?: Fault) => void;

/**
 * One queue for each key that calls of this process want: the first has the turn, to ask Redis and to hold the lock;
 * the others wait in their order of arrival, at no cost to Redis.
 */
export class LocalQueue {
  readonly #waiters = new Map<string, Set<Take>>();

  /** How many keys are in use. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Whether somebody has the turn. */
  has(key: string): boolean {
    return this.#waiters.has(key);
  }

  /** Takes the turn if nobody has it. */
  tryEnter(key: string): boolean {
    if (this.#waiters.has(key)) return false;
    this.#waiters.set(key, NOBODY);
    return true;
  }

  /**
   * Waits for the turn, behind all who came before: somebody has it.
   * @returns `turn` resolves when the caller has it, with word from the one before; `giveUp` takes the caller out of
   *   the queue, and returns false if it had just been given the turn: then it has to leave
   */
  join(key: string): { turn: Promise<Fault | undefined>; giveUp: () => boolean } {
    let waiters = this.#waiters.get(key)!;
    if (waiters === NOBODY) this.#waiters.set(key, (waiters = new Set()));
    const queue = waiters;
    let take!: Take;
    const turn = new Promise<Fault | undefined>((resolve) => {
      take = resolve;
    });
    queue.add(take);
    return { turn, giveUp: () => queue.delete(take) };
  }

  /**
   * Passes the turn to the next in the queue.
   * @returns whether there was one
   */
  leave(key: string, fault?: Fault): boolean {
    const waiters = this.#waiters.get(key)!;
    for (const take of waiters) {
      waiters.delete(take);
      take(fault);
      return true;
    }
    this.#waiters.delete(key);
    return false;
  }

  /** How many wait for the key, without the one who has the turn. */
  waiting(key: string): number {
    return this.#waiters.get(key)?.size ?? 0;
  }
}

/** Stands for the queue of a key that nobody waits for: most never need one of their own. */
const NOBODY: Set<Take> = new Set();
