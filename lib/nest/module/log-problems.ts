import type { Logger } from '@nestjs/common';
import type { HeldAs, LockEvent } from '../../api/events.js';
import { describePermits } from '../../api/holder.js';
import { quoted } from '../../api/printable.js';
import type { LockService } from '../../core/service/lock.service.js';
import { Outage } from './outage.js';

/** How long after the application began to close running work is not logged, in milliseconds. */
const PATIENCE_MS = 1_000;
/** How long further events of one kind are collected into one line, in milliseconds. */
const FOLD_MS = 1_000;
/** How many locks a line names. */
const MAX_NAMED = 10;

/** The events after which the process no longer holds a lock. */
const ENDS: ReadonlySet<LockEvent['type']> = new Set(['released', 'release-failed', 'lost', 'detached']);

type EventOf<Type extends LockEvent['type']> = Extract<LockEvent, { type: Type }>;

/** Logs the problems of a service's locks for its operator. */
export function logProblems(service: LockService, logger: Logger): void {
  const kept = new KeptLocks((message) => logger.error(message));
  const outage = new Outage(service, logger);
  const lost = new Folded<EventOf<'lost'>>((events) => {
    const [first] = events;
    if (events.length === 1) {
      const { fencingToken, permits = 1, reason } = first;
      const token = fencingToken === undefined ? '' : ` (fencing token ${fencingToken})`;
      logger.error(`${capitalized(describe(first))}${token} ${permits === 1 ? 'was' : 'were'} lost: ${reason}.`);
    } else {
      const reasons = [...new Set(events.map((event) => event.reason))].join(', ');
      logger.error(`${events.length} more locks were lost (${reasons}): ${named(events)}.`);
    }
  });
  const unreleased = new Folded<EventOf<'release-failed'>>((events) => {
    const [first] = events;
    if (events.length === 1) {
      const problems = first.causes.map((cause) => cause.message).join('; ');
      logger.warn(`The release of ${describe(first)} was not confirmed and is being retried: ${problems}.`);
    } else {
      logger.warn(
        `The releases of ${events.length} more locks were not confirmed and are being retried: ${named(events)}.`,
      );
    }
  });
  service.problems$.subscribe({
    next: (event) => {
      kept.note(event);
      if ('causes' in event && event.type !== 'release-failed') outage.note(event); // a failed release is not an outage
      if (event.type === 'lost') lost.note(event);
      else if (event.type === 'release-failed') unreleased.note(event);
      else if (event.type === 'warning') logger.warn(event.message);
    },
    complete: () => {
      for (const each of [kept, outage, lost, unreleased]) each.end();
    },
  });
}

/** Logs the first event at once, and the events of the next second in one line: an outage may end every lock that is held. */
class Folded<Event> {
  #more: Event[] = [];
  #timer?: NodeJS.Timeout;

  constructor(private readonly log: (events: [Event, ...Event[]]) => void) {}

  note(event: Event): void {
    this.#more.push(event);
    if (!this.#timer) this.#flush();
  }

  end(): void {
    clearTimeout(this.#timer);
    if (this.#more.length > 0) this.log(this.#more as [Event, ...Event[]]);
  }

  #flush(): void {
    this.#timer = undefined;
    const [first, ...others] = this.#more;
    if (first === undefined) return;
    this.#more = [];
    this.log([first, ...others]);
    this.#timer = setTimeout(() => this.#flush(), FOLD_MS).unref();
  }
}

/**
 * Logs the locks that the application waits for when it closes. It logs an error, because the logger of Nest's tests prints only
 * errors. Otherwise, in a test, a lock that is never released would just make a hook time out.
 */
class KeptLocks {
  /** By owner value, since several calls may hold permits of one key. */
  readonly #kept = new Map<string, EventOf<'closing'>>();
  #timer?: NodeJS.Timeout;

  constructor(private readonly log: (message: string) => void) {}

  note(event: LockEvent): void {
    if (event.type === 'closing') {
      this.#kept.set(event.owner, event);
      this.#timer ??= setTimeout(() => this.#logKept(event.timeoutMs), PATIENCE_MS).unref();
    } else if ('owner' in event && ENDS.has(event.type)) {
      const { owner, key } = event;
      // A downgrade gives the lock another owner value.
      const before = [...this.#kept.values()].find((each) => each.key === key && each.mode === undefined);
      this.#kept.delete(this.#kept.has(owner) ? owner : (before?.owner ?? owner));
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #logKept(timeoutMs: number): void {
    if (this.#kept.size === 0) return;
    this.log(
      `Waiting for locks to be released, for up to ${timeoutMs} ms (shutdownTimeoutMs): ` +
        `${named([...this.#kept.values()])}. ` +
        'If their work has ended, a release or an await is missing.',
    );
  }
}

type Held = HeldAs & { readonly key: string };

/** Describes a held lock: `lock "k"`, `shared lock "k"`, `2 permits of "k"`. */
function describe({ key, mode, permits }: Held): string {
  if (permits !== undefined) return describePermits(key, permits);
  return mode === undefined ? `lock ${quoted(key)}` : `${mode} lock ${quoted(key)}`;
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Names the first ten locks and counts the rest. Locks of one key in one mode share a name. */
function named(locks: readonly Held[]): string {
  const known = new Map<string, Held>();
  for (const { key, mode, permits } of locks) {
    const name = `${mode} ${key}`;
    known.set(name, { key, mode, permits: permits && permits + (known.get(name)?.permits ?? 0) });
  }
  const each = [...known.values()];
  const names = each.slice(0, MAX_NAMED).map((lock) => (lock.mode === undefined ? quoted(lock.key) : describe(lock)));
  if (each.length > MAX_NAMED) names.push(`${each.length - MAX_NAMED} more`);
  return names.join(', ');
}
