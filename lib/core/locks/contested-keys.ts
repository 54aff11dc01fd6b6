/** How long a generation of keys lasts, in milliseconds, and how many keys it has at most. */
const [GENERATION_MS, KEYS_IN_GENERATION] = [1_000, 500];

/**
 * The keys that calls of this process had to wait for during the last one to two seconds. The next call for such a key will probably have to
 * wait, too. So it takes its place in the queue of the store with its first attempt, which saves the attempt that would be refused. There are
 * two generations of keys, because finding the oldest entry of a Map that changes all the time is slow.
 */
export class ContestedKeys {
  #recent = new Set<string>();
  #before = new Set<string>();
  #since = -Infinity;

  constructor(private readonly now: () => number) {}

  note(key: string): void {
    this.#age();
    if (this.#recent.size >= KEYS_IN_GENERATION) this.#begin(this.#recent);
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
