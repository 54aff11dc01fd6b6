import { outsideOfCalls } from '../time/event-loop.js';
import { LinkedList, type Linked } from '../time/linked-list.js';

/**
 * The period of the checks of a key, in milliseconds: shorter than a grant that is not confirmed stands, so that no waiter is stuck
 * for longer than that, whatever message, queue or lock was lost.
 */
export const CHECK_MS = 1_000;
/** The period of the contenders for a key that has many here, docs/adr/0029-checks.md: half the time a queue stands without a sign. */
export const OTHERS_CHECK_MS = 5_000;

/** What comes due within this part of its period is checked along: few large batches instead of many small ones. */
const COALESCE = 1 / 10;
/** How many are checked at once: very many would keep the process waiting. */
const CHECKS_AT_ONCE = 500;
/** After so many milliseconds the next ones are: meanwhile answers are read, and others have their time. */
const PAUSE_MS = 3;

/** A key, or a contender, that is to be checked after a while, unless it is removed from its list before. */
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
  readonly #lists = {
    key: new CheckList(CHECK_MS),
    soon: new CheckList(0),
    other: new CheckList(OTHERS_CHECK_MS),
  };
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(private readonly now: () => number) {}

  /** Checks it after a while: a key, or one of the other contenders for it. */
  add(check: Check, which: 'key' | 'other'): void {
    this.#wakeAt(this.#push(check, this.#lists[which]));
  }

  /** Checks these as soon as may be, in their order. */
  hurry(checks: Iterable<Check>): void {
    for (const check of checks) this.#push(check, this.#lists.soon);
    outsideOfCalls(() => this.#look());
  }

  /** @returns when it comes due */
  #push(check: Check, list: CheckList): number {
    check.list?.remove(check);
    check.dueAt = this.now() + list.periodMs;
    list.push(check);
    return check.dueAt;
  }

  #wakeAt(dueAt: number): void {
    if (dueAt >= this.#timerDue) return;
    clearTimeout(this.#timer);
    this.#timerDue = dueAt;
    const delayMs = Math.max(1, Math.ceil(dueAt - this.now()));
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#look(), delayMs)).unref();
  }

  #look(): void {
    this.#timerDue = Infinity;
    const now = this.now();
    const lists = Object.values(this.#lists);
    let left = CHECKS_AT_ONCE;
    for (const list of lists) {
      const due = now + list.periodMs * COALESCE;
      for (let check = list.first; check && check.dueAt <= due && left > 0; check = list.first) {
        left--;
        list.remove(check);
        check.onDue();
      }
    }
    const next = Math.min(...lists.map(({ first }) => first?.dueAt ?? Infinity));
    this.#wakeAt(Math.max(next, this.now() + PAUSE_MS));
  }
}
