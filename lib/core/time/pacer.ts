import { outsideOfCalls } from './event-loop.js';
import { LinkedList, type Linked } from './linked-list.js';

/** The pause between two batches of items, in milliseconds: meanwhile the process reads answers and does other work. */
export const PAUSE_MS = 3;

/** How many empty queues a pacer keeps. */
const EMPTY_QUEUES = 8;

/** The period of items that are due at once. */
const NONE = 0;

/** An item that comes due after a while, unless it is removed before. */
export interface Paced<Item> extends Linked<Item> {
  /** When it comes due, by the clock of the pacer. */
  dueAt: number;
}

/** How the items of a pacer come due. */
export interface Pace<Item> {
  readonly now: () => number;
  /** Maximum number of items that come due at once: too many would delay the process, and the other clients of a server. */
  readonly atOnce: number;
  /** How early an item may come due, in milliseconds: a few large batches cost less than many small ones. */
  leewayMs(item: Item): number;
  /** Whether an item comes first at this time, without a pause. */
  isUrgent(item: Item, at: number): boolean;
  /** An item is due. It stays due until it is added again, or removed. */
  onDue(item: Item): void;
}

/** Items of one period, in the order in which they come due. */
class Queue<Item extends Linked<Item>> extends LinkedList<Item> {
  /** When the last item comes due. */
  lastDueAt = -Infinity;

  constructor(readonly period: number) {
    super();
  }
}

/**
 * Keeps the time of many items with one timer, which does not keep the process alive. Items with the same period mostly come due in the order
 * in which they are added, so there is a queue for each period. Other items are in a list, which it checks one by one.
 */
export class Pacer<Item extends Paced<Item>> {
  /** By period. The first queue has the items that are due at once. */
  readonly #queues = new Map([[NONE, new Queue<Item>(NONE)]]);
  readonly #outOfOrder = new LinkedList<Item>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(private readonly pace: Pace<Item>) {}

  get size(): number {
    let { size } = this.#outOfOrder;
    for (const queue of this.#queues.values()) size += queue.size;
    return size;
  }

  get items(): Item[] {
    return [...this.#queues.values(), this.#outOfOrder].flatMap((list) => list.filter(() => true));
  }

  /** How late its timer is, in milliseconds: for so long the process did not run. */
  get lateMs(): number {
    return this.pace.now() - this.#timerDue;
  }

  /** @param period the same number for items that come due in the order in which they are added */
  add(item: Item, dueAt: number, period?: number): void {
    this.remove(item);
    item.dueAt = dueAt;
    this.#push(item, period);
    this.#wakeAt(dueAt);
  }

  /** Makes items come due as soon as possible, in their order. */
  hurry(items: Iterable<Item>): void {
    const now = this.pace.now();
    for (const item of items) {
      this.remove(item);
      item.dueAt = now;
      this.#push(item, NONE);
    }
    outsideOfCalls(() => this.#look());
  }

  /** Removes an item, so that it does not come due. Does nothing for an item that was not added. */
  remove(item: Item): void {
    const { list } = item;
    list?.remove(item);
    const isEmpty = list instanceof Queue && list.size === 0 && list.period !== NONE;
    if (isEmpty && this.#queues.size > EMPTY_QUEUES) this.#queues.delete(list.period);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timerDue = Infinity;
  }

  #push(item: Item, period: number | undefined): void {
    if (period === undefined) {
      this.#outOfOrder.push(item);
      return;
    }
    let queue = this.#queues.get(period);
    if (!queue) this.#queues.set(period, (queue = new Queue(period)));
    else if (queue.size === 0) queue.lastDueAt = -Infinity;
    if (item.dueAt < queue.lastDueAt - this.pace.leewayMs(item)) {
      this.#outOfOrder.push(item);
      return;
    }
    queue.lastDueAt = Math.max(queue.lastDueAt, item.dueAt);
    queue.push(item);
  }

  #wakeAt(dueAt: number): void {
    if (dueAt >= this.#timerDue) return;
    clearTimeout(this.#timer);
    this.#timerDue = dueAt;
    // Rounded up: a timer that fires before the deadline of a lease would find the lease still valid.
    const delayMs = Math.max(1, Math.ceil(dueAt - this.pace.now()));
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#look(), delayMs)).unref();
  }

  #look(): void {
    const now = this.pace.now();
    const urgent: Item[] = [];
    const due: Item[] = [];
    /** @returns false when the item has to wait for the next batch */
    const take = (item: Item): boolean => {
      if (this.pace.isUrgent(item, now)) urgent.push(item);
      else if (due.length < this.pace.atOnce) due.push(item);
      else return false;
      return true;
    };
    for (const queue of this.#queues.values()) {
      let item = queue.first;
      while (item && item.dueAt <= now + this.pace.leewayMs(item) && take(item)) item = item.next;
    }
    for (let item = this.#outOfOrder.first; item; item = item.next) if (item.dueAt <= now) take(item);
    try {
      for (const item of [...urgent, ...due]) if (item.list) this.pace.onDue(item);
    } finally {
      this.#timerDue = Infinity; // even if an item throws, the others come due
      this.#wakeAt(this.#nextDue(now + PAUSE_MS));
    }
  }

  /** @param resumeAt when the pause is over: before that, only urgent items come due */
  #nextDue(resumeAt: number): number {
    let next = Infinity;
    const consider = (item: Item) => {
      const isUrgent = this.pace.isUrgent(item, item.dueAt);
      next = Math.min(next, isUrgent ? item.dueAt : Math.max(item.dueAt, resumeAt));
    };
    for (const { first } of this.#queues.values()) if (first) consider(first); // the first one of a queue comes due first
    for (let item = this.#outOfOrder.first; item; item = item.next) consider(item);
    return next;
  }
}
