import { LinkedList, type Linked } from '../time/linked-list.js';

/** A contender with a place in the queue of the store asks again after this time at the latest, in milliseconds. */
export const CHECK_MS = 1_000;

/** What comes due within this part of its period is checked along: few large batches instead of many small ones. */
const COALESCE = 1 / 10;
/** How many are checked at once: very many would keep the process waiting. */
const CHECKS_AT_ONCE = 500;
/** After so many milliseconds the next ones are: meanwhile answers are read, and others have their time. */
const PAUSE_MS = 3;

/** One that is to be checked after a while, unless it is removed from its list before. */
export interface Check extends Linked<Check> {
  dueAt: number;
  /** It is in no list any more. */
  onDue(): void;
}

/** The checks of one period, in the order in which they come due. */
class CheckList extends LinkedList<Check> {
  constructor(readonly periodMs: number) {
    super();
  }
}

/** Keeps the time of all checks of a service with one timer, which does not keep the process alive. */
export class Checks {
  readonly #list = new CheckList(CHECK_MS);
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(private readonly now: () => number) {}

  /** Checks it after its period. */
  add(check: Check): void {
    check.list?.remove(check);
    check.dueAt = this.now() + this.#list.periodMs;
    this.#list.push(check);
    this.#wakeAt(check.dueAt);
  }

  #wakeAt(dueAt: number): void {
    if (dueAt >= this.#timerDue) return;
    clearTimeout(this.#timer);
    this.#timerDue = dueAt;
    this.#timer = setTimeout(() => this.#look(), Math.max(1, Math.ceil(dueAt - this.now()))).unref();
  }

  #look(): void {
    const list = this.#list;
    const due = this.now() + list.periodMs * COALESCE;
    let left = CHECKS_AT_ONCE;
    for (let check = list.first; check && check.dueAt <= due && left > 0; check = list.first) {
      left--;
      list.remove(check);
      check.onDue();
    }
    this.#timerDue = Infinity;
    if (list.first) this.#wakeAt(Math.max(list.first.dueAt, this.now() + PAUSE_MS));
  }
}
