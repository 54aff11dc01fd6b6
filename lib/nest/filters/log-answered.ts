import { Logger } from '@nestjs/common';
import { LockKeyError, type LockError } from '../../api/errors.js';

/** What a request has by its route and its guards, not by what its client sends: a key that lacks it is misspelt, perhaps. */
const OF_THE_PROGRAM = /^(params|user)\b/;

const logger = new Logger('LockExceptionsHandler');

/**
 * Logs an error that a client is answered with. Refusals are ordinary: why locks are unavailable is a warning of its own, and
 * a request without a key is the client's mistake, as a rule. Errors of the program keep their stack.
 */
export function logAnswered(error: LockError): void {
  switch (error.code) {
    case 'LOCK_CONTENDED':
    case 'LOCK_UNAVAILABLE':
      logger.debug(error.message);
      break;
    case 'LOCK_LOST':
    case 'LOCK_STALE_TOKEN':
      logger.warn(error.message);
      break;
    default:
      if (!(error instanceof LockKeyError) || error.status !== 400) logger.error(error);
      else if (OF_THE_PROGRAM.test(error.field ?? '')) logger.warn(error.message);
      else logger.debug(error.message);
  }
}
