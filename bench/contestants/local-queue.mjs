/** A plain FIFO per key in the memory of one process. */
export class LocalQueue {
  #waiting = new Map();

  /** Resolves when all earlier ones have left. */
  enter(key) {
    const waiting = this.#waiting.get(key);
    if (!waiting) {
      this.#waiting.set(key, []);
      return Promise.resolve();
    }
    return new Promise((resolve) => waiting.push(resolve));
  }

  leave(key) {
    const waiting = this.#waiting.get(key);
    if (waiting.length > 0) waiting.shift()();
    else this.#waiting.delete(key);
  }
}
