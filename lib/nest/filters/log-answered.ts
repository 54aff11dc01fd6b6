import { Logger } from '@nestjs/common';
import { LockKeyError, type LockError } from '../../api/errors.js';

const logger = new Logger('LockExceptionsHandler');

/**
 * Logs an error that a client gets as the answer. Refusals are ordinary: an outage is logged elsewhere, and so is the first
 * request that lacks a part of a key. Errors of the program keep their stack.
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
