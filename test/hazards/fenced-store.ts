/** A resource that checks tokens: it remembers the largest fencing token it has seen, and refuses a smaller one. */
export class FencedStore {
  value?: string;
  #greatest = 0;

  /** @returns whether it was written */
  write(value: string, fencingToken: number): boolean {
    if (fencingToken < this.#greatest) return false;
    this.#greatest = fencingToken;
    this.value = value;
    return true;
  }
}
