import { Logger } from '@nestjs/common';
import { LockKeyError, type LockError } from '../../errors.js';

const logger = new Logger('LockExceptionsHandler');

/**
 * Logs an error that a client is answered with. Refusals are ordinary: why locks are unavailable is a warning of its own, and
 * a request without a key is the client's mistake. Errors of the program keep their stack.
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
      if (error instanceof LockKeyError && error.status === 400) logger.debug(error.message);
      else logger.error(error);
  }
}
