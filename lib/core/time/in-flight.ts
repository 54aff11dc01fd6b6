/** Counts operations in flight, so that closing can wait for the last of them. */
export class InFlight {
  #count = 0;
  readonly #waiting: (() => void)[] = [];

  begin(): void {
    this.#count++;
  }

  end(): void {
    if (--this.#count === 0) for (const wake of this.#waiting.splice(0)) wake();
  }

  async settled(): Promise<void> {
    while (this.#count > 0) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
  }
}
