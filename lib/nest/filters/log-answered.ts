import { Logger } from '@nestjs/common';
import { LockKeyError, type LockError } from '../../api/errors.js';

/** The parts of a request that its route and guards provide, not its client: a key that lacks one is probably misspelt. */
const OF_THE_PROGRAM = /^(params|user)\b/;

const logger = new Logger('LockExceptionsHandler');

/**
 * Logs an error that a client gets as the answer. Refusals are ordinary: an outage is logged elsewhere, and a request without
 * a key is usually the client's mistake. Errors of the program keep their stack.
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
