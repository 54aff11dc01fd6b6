import { outsideOfCalls } from './event-loop.js';
import { LinkedList, type Linked } from './linked-list.js';

/** After so many milliseconds the next items come due: meanwhile answers are read, and others have their time. */
export const PAUSE_MS = 3;

/** How many queues, one for each period in use, may be empty for a while. */
const EMPTY_QUEUES = 8;

/** The period of those that are hurried. */
const NONE = 0;

/** What comes due after a while, unless it is removed before. */
export interface Paced<Item> extends Linked<Item> {
  /** When it comes due, by the clock. */
  dueAt: number;
}

/** How the items of a pacer come due. */
export interface Pace<Item> {
  readonly now: () => number;
  /** How many come due at once: very many would keep the process, and the other clients of a server, waiting. */
  readonly atOnce: number;
  /** How much earlier than its time an item may come due, in milliseconds: few large batches cost less than many small ones. */
  leewayMs(item: Item): number;
  /** Whether an item that is due at a time comes first, and waits for no pause. */
  isUrgent(item: Item, at: number): boolean;
  /** An item is due. It stays so until it is added anew, or removed. */
  onDue(item: Item): void;
}

/** Items of one period, in the order in which they come due. */
class Queue<Item extends Linked<Item>> extends LinkedList<Item> {
  /** When the last one comes due. */
  lastDueAt = -Infinity;

  constructor(readonly period: number) {
    super();
  }
}

/**
 * Keeps the time of many items with one timer, which does not keep the process alive. Those of one period mostly come due in the order
 * in which they are added, so there is a queue for each period; items out of order, and those without a period, are looked at one by one.
 */
export class Pacer<Item extends Paced<Item>> {
  /** By their periods; those that are hurried come first. */
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

  /** By how many milliseconds it is late: then the process did not run. */
  get lateMs(): number {
    return this.pace.now() - this.#timerDue;
  }

  /** @param period a number that is the same for items which come due in the order in which they are added */
  add(item: Item, dueAt: number, period?: number): void {
    this.remove(item);
    item.dueAt = dueAt;
    this.#push(item, period);
    this.#wakeAt(dueAt);
  }

  /** These come due as soon as possible, in their order. */
  hurry(items: Iterable<Item>): void {
    const now = this.pace.now();
    for (const item of items) {
      this.remove(item);
      item.dueAt = now;
      this.#push(item, NONE);
    }
    outsideOfCalls(() => this.#look());
  }

  /** After it returns, the item does not come due any more. Does nothing for one that was not added. */
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
    // Never early by a rounding: at its deadline a lease counts as ended.
    const delayMs = Math.max(1, Math.ceil(dueAt - this.pace.now()));
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#look(), delayMs)).unref();
  }

  #look(): void {
    const now = this.pace.now();
    const urgent: Item[] = [];
    const due: Item[] = [];
    /** @returns false when it has to wait */
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
      this.#timerDue = Infinity; // also when one throws: the others come due
      this.#wakeAt(this.#nextDue(now + PAUSE_MS));
    }
  }

  /** @param resumeAt when the pause is over: before that, only what is urgent comes due */
  #nextDue(resumeAt: number): number {
    let next = Infinity;
    const consider = (item: Item) => {
      const isUrgent = this.pace.isUrgent(item, item.dueAt);
      next = Math.min(next, isUrgent ? item.dueAt : Math.max(item.dueAt, resumeAt));
    };
    for (const { first } of this.#queues.values()) if (first) consider(first); // it comes due first
    for (let item = this.#outOfOrder.first; item; item = item.next) consider(item);
    return next;
  }
}
