/** Counts operations in flight, so that closing can wait for the last of them. */
export class InFlight {
  #count = 0;
  #whenSettled?: () => void;

  begin(): void {
    this.#count++;
  }

  end(): void {
    if (--this.#count === 0) this.#whenSettled?.();
  }

  async settled(): Promise<void> {
    while (this.#count > 0) {
      await new Promise<void>((resolve) => {
        this.#whenSettled = resolve;
      });
    }
  }
}
