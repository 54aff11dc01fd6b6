/** How long a generation lasts, in milliseconds, and how many keys it has at most. */
const GENERATION_MS = 1_000;
const KEYS = 500;

/**
 * The keys that calls of this process had to wait for a moment ago: one second to two. The next call for one of them will
 * probably have to wait, too: it takes its place in the queue of the store with its first attempt, which saves the one that would
 * be refused. There are two generations of keys, as it is costly to find the oldest entry of a Map that is written all the time.
 */
export class ContestedKeys {
  #recent = new Set<string>();
  #before = new Set<string>();
  #since = -Infinity;

  constructor(private readonly now: () => number) {}

  note(key: string): void {
    this.#age();
    if (this.#recent.size >= KEYS) this.#begin(this.#recent);
    this.#recent.add(key);
  }

  has(key: string): boolean {
    this.#age();
    return this.#recent.has(key) || this.#before.has(key);
  }

  #age(): void {
    const ageMs = this.now() - this.#since;
    if (ageMs >= GENERATION_MS) this.#begin(ageMs < 2 * GENERATION_MS ? this.#recent : new Set());
  }

  #begin(before: Set<string>): void {
    this.#before = before;
    this.#recent = new Set();
    this.#since = this.now();
  }
}
