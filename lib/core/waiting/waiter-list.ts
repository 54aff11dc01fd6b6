import { LinkedList } from '../time/linked-list.js';
import type { Waiter } from './waiter.js';

/** The calls of this process that want one lock. */
export class WaiterList extends LinkedList<Waiter> {
  #triers = 0;

  /** How many of them try once. */
  get triers(): number {
    return this.#triers;
  }

  override push(waiter: Waiter): void {
    super.push(waiter);
    if (waiter.triesOnce) this.#triers++;
  }

  override remove(waiter: Waiter): void {
    super.remove(waiter);
    if (waiter.triesOnce) this.#triers--;
  }
}
