import type { Logger } from '@nestjs/common';
import type { LockEvent } from '../events.js';
import type { LockService } from '../service/lock.service.js';

/** Work that ends within this time after the application began to close is not worth a word, in milliseconds. */
const PATIENCE_MS = 1_000;
/** So many locks are named. */
const NAMED = 10;

/** Logs what an operator should know of the locks of a service. */
export function logTroubles(service: LockService, logger: Logger): void {
  const kept = new KeptLocks((message) => logger.error(message));
  service.events$.subscribe({
    next: (event) => {
      kept.note(event);
      if (event.type === 'lost') {
        logger.error(`Lock "${event.key}" (fencing token ${event.fencingToken}) was lost: ${event.reason}.`);
      } else if (event.type === 'release-failed') {
        const causes = event.causes.map((cause) => cause.message).join('; ');
        logger.warn(`The release of lock "${event.key}" was not confirmed and is repeated: ${causes}.`);
      } else if (event.type === 'warning') {
        logger.warn(event.message);
      }
    },
    complete: () => kept.end(),
  });
}

/**
 * The locks that the application waits for when it closes. Told as an error, which the logger of Nest's tests prints:
 * there a lock that nobody releases is seen as a hook that takes too long.
 */
class KeptLocks {
  readonly #keys = new Set<string>();
  #timer?: NodeJS.Timeout;

  constructor(private readonly tell: (message: string) => void) {}

  note(event: LockEvent): void {
    if (event.type === 'closing') {
      this.#keys.add(event.key);
      this.#timer ??= setTimeout(() => this.#tell(event.timeoutMs), PATIENCE_MS).unref();
    } else if (event.type === 'released' || event.type === 'release-failed' || event.type === 'lost') {
      this.#keys.delete(event.key);
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #tell(timeoutMs: number): void {
    if (this.#keys.size === 0) return;
    const named = [...this.#keys].slice(0, NAMED).map((key) => `"${key}"`);
    if (this.#keys.size > NAMED) named.push(`${this.#keys.size - NAMED} more`);
    this.tell(
      `Waiting for locks to be released, for up to ${timeoutMs} ms (shutdownTimeoutMs): ${named.join(', ')}. ` +
        'If their work has ended, a release or an await is missing.',
    );
  }
}
