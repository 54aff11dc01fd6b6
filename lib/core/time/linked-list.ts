/** What can stand in a list, in one at a time. */
export interface Linked<T> {
  /** Where it stands. */
  list?: { remove(item: T): void };
  next?: T;
  previous?: T;
}

/**
 * Items in the order in which they came, of whom any can leave at any time, at the same cost. The links are in the items:
 * a Set that is filled and emptied all the time is made anew again and again, and in old memory each drags along the next.
 */
export class LinkedList<T extends Linked<T>> {
  #first?: T;
  #last?: T;
  #size = 0;

  get first(): T | undefined {
    return this.#first;
  }

  get size(): number {
    return this.#size;
  }

  push(item: T): void {
    item.list = this;
    item.previous = this.#last;
    if (this.#last) this.#last.next = item;
    else this.#first = item;
    this.#last = item;
    this.#size++;
  }

  /** Takes out an item that stands in this list. */
  remove(item: T): void {
    const { previous, next } = item;
    if (previous) previous.next = next;
    else this.#first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    item.list = item.previous = item.next = undefined;
    this.#size--;
  }

  /** Those for whom this is so. */
  filter(fits: (item: T) => boolean): T[] {
    const fitting: T[] = [];
    for (let item = this.#first; item; item = item.next) if (fits(item)) fitting.push(item);
    return fitting;
  }
}
