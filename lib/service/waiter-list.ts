import type { Waiter } from './waiter.js';

/** Waiters in the order of their arrival, of whom any can leave at any time, at the same cost. */
export class WaiterList {
  #first?: Waiter;
  #last?: Waiter;
  #size = 0;
  #triers = 0;

  get first(): Waiter | undefined {
    return this.#first;
  }

  get size(): number {
    return this.#size;
  }

  /** How many of them try once. */
  get triers(): number {
    return this.#triers;
  }

  push(waiter: Waiter): void {
    waiter.previous = this.#last;
    if (this.#last) this.#last.next = waiter;
    else this.#first = waiter;
    this.#last = waiter;
    this.#size++;
    if (waiter.triesOnce) this.#triers++;
  }

  remove(waiter: Waiter): void {
    const { previous, next } = waiter;
    if (previous) previous.next = next;
    else this.#first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    waiter.previous = waiter.next = undefined;
    this.#size--;
    if (waiter.triesOnce) this.#triers--;
  }

  /** Those for whom this is so. */
  filter(fits: (waiter: Waiter) => boolean): Waiter[] {
    const fitting: Waiter[] = [];
    for (let waiter = this.#first; waiter; waiter = waiter.next) if (fits(waiter)) fitting.push(waiter);
    return fitting;
  }
}
