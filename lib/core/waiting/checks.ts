import { outsideOfCalls } from '../time/event-loop.js';
import { LinkedList, type Linked } from '../time/linked-list.js';

/**
 * The period of the checks of a key, in milliseconds: shorter than a grant that is not confirmed stands, so that no waiter is stuck
 * for longer than that, whatever message, queue or lock was lost.
 */
export const CHECK_MS = 1_000;

/** What comes due within this part of its period is checked along: few large batches instead of many small ones. */
const COALESCE = 1 / 10;
/** How many are checked at once: very many would keep the process waiting. */
const CHECKS_AT_ONCE = 500;
/** After so many milliseconds the next ones are: meanwhile answers are read, and others have their time. */
const PAUSE_MS = 3;

/** A bid that is to be checked after a while, unless it is removed from its list before. */
export interface Check extends Linked<Check> {
  dueAt: number;
  /** It is in no list any more. */
  onDue(): void;
}

/** Keeps the time of all checks of a service with one timer, which does not keep the process alive. */
export class Checks {
  readonly #soon = new LinkedList<Check>();
  /** In the order in which they come due. */
  readonly #later = new LinkedList<Check>();
  #timer?: NodeJS.Timeout;
  #timerDue = Infinity;

  constructor(private readonly now: () => number) {}

  /** Checks it after `CHECK_MS`. */
  add(check: Check): void {
    check.list?.remove(check);
    check.dueAt = this.now() + CHECK_MS;
    this.#later.push(check);
    this.#wakeAt(check.dueAt);
  }

  /** Checks these as soon as may be, in their order. */
  hurry(checks: Iterable<Check>): void {
    for (const check of checks) {
      check.list?.remove(check);
      this.#soon.push(check);
    }
    outsideOfCalls(() => this.#look());
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
    const due = this.now() + CHECK_MS * COALESCE;
    for (let left = CHECKS_AT_ONCE; left > 0; left--) {
      const check = this.#soon.first ?? this.#later.first;
      if (!check || (!this.#soon.first && check.dueAt > due)) break;
      check.list!.remove(check);
      check.onDue();
    }
    const next = this.#soon.first ? -Infinity : (this.#later.first?.dueAt ?? Infinity);
    this.#wakeAt(Math.max(next, this.now() + PAUSE_MS));
  }
}
