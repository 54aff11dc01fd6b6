/** An item of a list; it can be in one list at a time. */
export interface Linked<T> {
  /** The list that it is in. */
  list?: { remove(item: T): void };
  next?: T;
  previous?: T;
}

/**
 * Items in the order in which they came. Each can be removed in constant time, since the links are in the items. V8 rebuilds a Set that changes
 * all the time again and again, and each old table in the heap's old generation keeps the next one alive.
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

  /** Removes an item that is in this list. */
  remove(item: T): void {
    const { previous, next } = item;
    if (previous) previous.next = next;
    else this.#first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    item.list = item.previous = item.next = undefined;
    this.#size--;
  }

  /** The items that fit, in order. */
  filter(fits: (item: T) => boolean): T[] {
    const fitting: T[] = [];
    for (let item = this.#first; item; item = item.next) if (fits(item)) fitting.push(item);
    return fitting;
  }
}
