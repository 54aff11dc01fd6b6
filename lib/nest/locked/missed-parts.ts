import { Logger } from '@nestjs/common';
import { LockKeyError } from '../../api/errors.js';

/** The error of a key that could not be made, with the decorator and the method named. */
export function keyErrorOf(where: string, { message, status, cause, field }: LockKeyError): LockKeyError {
  return new LockKeyError(
    `${where}: ${message.charAt(0).toLowerCase()}${message.slice(1)} The method did not run.`,
    status as 400 | 500,
    cause === undefined ? { field } : { cause, field },
  );
}

/**
 * The parts of a key that requests lacked. A template that is misspelt makes each request fail as if its client had left
 * something out: nothing else tells.
 */
export class MissedParts {
  readonly #named = new Set<string>();

  /** @param context that of the log */
  constructor(private readonly context: string) {}

  /** Logs a warning, once for each part. */
  warnOnce({ field, message }: LockKeyError): void {
    if (field === undefined || this.#named.has(field)) return;
    this.#named.add(field);
    new Logger(this.context).warn(
      `${message} If no request has {${field}}, correct the key. Further requests without it are not logged here.`,
    );
  }
}
