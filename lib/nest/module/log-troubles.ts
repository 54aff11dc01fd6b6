import type { Logger } from '@nestjs/common';
import type { LockEvent } from '../../api/events.js';
import { quoted } from '../../api/printable.js';
import type { LockService } from '../../core/service/lock.service.js';
import { Outage } from './outage.js';

/** How long after the application began to close running work is not logged, in milliseconds. */
const PATIENCE_MS = 1_000;
/** How long further events of one kind are collected into one line, in milliseconds. */
const FOLD_MS = 1_000;
/** How many locks a line names. */
const NAMED = 10;

/** The events of a lock that its process holds no more. */
const ENDS: ReadonlySet<LockEvent['type']> = new Set(['released', 'release-failed', 'lost', 'detached']);

type EventOf<Type extends LockEvent['type']> = Extract<LockEvent, { type: Type }>;

/** Logs the troubles of a service's locks for its operator. */
export function logTroubles(service: LockService, logger: Logger): void {
  const kept = new KeptLocks((message) => logger.error(message));
  const outage = new Outage(service, logger);
  const lost = new Folded<EventOf<'lost'>>((events) => {
    const [{ key, fencingToken, reason }] = events;
    if (events.length === 1) {
      logger.error(`Lock ${quoted(key)} (fencing token ${fencingToken}) was lost: ${reason}.`);
    } else {
      const reasons = [...new Set(events.map((event) => event.reason))].join(', ');
      logger.error(`${events.length} more locks were lost (${reasons}): ${named(events)}.`);
    }
  });
  const unreleased = new Folded<EventOf<'release-failed'>>((events) => {
    const [{ key, causes }] = events;
    if (events.length === 1) {
      const problems = causes.map((cause) => cause.message).join('; ');
      logger.warn(`The release of lock ${quoted(key)} was not confirmed and is being retried: ${problems}.`);
    } else {
      logger.warn(
        `The releases of ${events.length} more locks were not confirmed and are being retried: ${named(events)}.`,
      );
    }
  });
  service.troubles$.subscribe({
    next: (event) => {
      kept.note(event);
      if ('causes' in event) outage.note(event);
      if (event.type === 'lost') lost.note(event);
      else if (event.type === 'release-failed') unreleased.note(event);
      else if (event.type === 'warning') logger.warn(event.message);
    },
    complete: () => {
      for (const each of [kept, outage, lost, unreleased]) each.end();
    },
  });
}

/** Logs the first event at once, and the events that closely follow it together: an outage may cost every lock that is held. */
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
 * The locks that the application waits for when it closes. Logged as an error, which the logger of Nest's tests prints:
 * there a lock that is never released shows up only as a hook that takes too long.
 */
class KeptLocks {
  readonly #keys = new Set<string>();
  #timer?: NodeJS.Timeout;

  constructor(private readonly log: (message: string) => void) {}

  note(event: LockEvent): void {
    if (event.type === 'closing') {
      this.#keys.add(event.key);
      this.#timer ??= setTimeout(() => this.#logKept(event.timeoutMs), PATIENCE_MS).unref();
    } else if (ENDS.has(event.type)) {
      this.#keys.delete(event.key);
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #logKept(timeoutMs: number): void {
    if (this.#keys.size === 0) return;
    this.log(
      `Waiting for locks to be released, for up to ${timeoutMs} ms (shutdownTimeoutMs): ` +
        `${named([...this.#keys].map((key) => ({ key })))}. ` +
        'If their work has ended, a release or an await is missing.',
    );
  }
}

/** The names of the first of these locks, and the number of the others. */
function named(locks: readonly { key: string }[]): string {
  const names = locks.slice(0, NAMED).map(({ key }) => quoted(key));
  if (locks.length > NAMED) names.push(`${locks.length - NAMED} more`);
  return names.join(', ');
}
