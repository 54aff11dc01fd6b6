/** For how long a key is remembered, in milliseconds. */
const REMEMBERED_MS = 1_000;
/** How many keys are remembered at most. */
const AT_MOST = 1_000;

/**
 * The keys that calls of this process had to wait for a moment ago. The next call for one of them will probably have to wait,
 * too: it takes its place in the queue of the store with its first attempt, which saves the one that would be refused.
 */
export class ContestedKeys {
  /** When each was last contested, the latest at the end. */
  readonly #contestedAt = new Map<string, number>();

  constructor(private readonly now: () => number) {}

  note(key: string): void {
    this.#contestedAt.delete(key);
    this.#contestedAt.set(key, this.now());
    if (this.#contestedAt.size <= AT_MOST) return;
    const [oldest] = this.#contestedAt.keys();
    this.#contestedAt.delete(oldest!);
  }

  has(key: string): boolean {
    const contestedAt = this.#contestedAt.get(key);
    if (contestedAt === undefined) return false;
    if (this.now() - contestedAt < REMEMBERED_MS) return true;
    this.#contestedAt.delete(key);
    return false;
  }
}
