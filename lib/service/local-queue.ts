/**
 * One queue for each key that calls of this process want: the first has the turn, to ask Redis and to hold the lock;
 * the others wait in their order of arrival, at no cost to Redis.
 */
export class LocalQueue {
  readonly #waiters = new Map<string, Set<() => void>>();

  /** How many keys are in use. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Takes the turn if nobody has it. */
  tryEnter(key: string): boolean {
    if (this.#waiters.has(key)) return false;
    this.#waiters.set(key, NOBODY);
    return true;
  }

  /**
   * Waits for the turn, behind all who came before.
   * @returns `turn` resolves when the caller has it; `giveUp` takes the caller out of the queue, and passes the turn
   *   on if it had just been given
   */
  join(key: string): { turn: Promise<void>; giveUp: () => void } {
    if (this.tryEnter(key)) return { turn: Promise.resolve(), giveUp: () => this.leave(key) };
    let waiters = this.#waiters.get(key)!;
    if (waiters === NOBODY) this.#waiters.set(key, (waiters = new Set()));
    const queue = waiters;
    let take!: () => void;
    const turn = new Promise<void>((resolve) => (take = resolve));
    queue.add(take);
    return {
      turn,
      giveUp: () => {
        if (!queue.delete(take)) this.leave(key);
      },
    };
  }

  /** Passes the turn to the next in the queue. */
  leave(key: string): void {
    const waiters = this.#waiters.get(key)!;
    for (const take of waiters) {
      waiters.delete(take);
      take();
      return;
    }
    this.#waiters.delete(key);
  }

  /** How many wait for the key, without the one who has the turn. */
  waiting(key: string): number {
    return this.#waiters.get(key)?.size ?? 0;
  }
}

/** Stands for the queue of a key that nobody waits for: most never need one of their own. */
const NOBODY: Set<() => void> = new Set();
