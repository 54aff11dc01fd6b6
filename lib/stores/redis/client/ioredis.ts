import { LockOptionsError } from '../../../api/errors.js';
import { problemOf } from './problem-of.js';
import { CommandFault } from './redis-client.js';

/** The class of errors that Redis answered with, once ioredis is loaded. */
let replyError: unknown;

/**
 * Loads ioredis when the first Redis is used: locks in memory do not need it.
 * @throws LockOptionsError when it is not installed
 */
export async function loadIoredis() {
  try {
    const ioredis = await import('ioredis');
    replyError = ioredis.ReplyError;
    return ioredis;
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw new LockOptionsError('Locks on Redis need ioredis, which is not installed: npm install ioredis.', {
      cause: error,
    });
  }
}

/** Whether ioredis itself is missing, and not one of its own dependencies. */
function isMissing(error: unknown): boolean {
  const { code, message } = error as NodeJS.ErrnoException;
  return /^(ERR_)?MODULE_NOT_FOUND$/.test(code ?? '') && message.includes("'ioredis'");
}

/**
 * Whether Redis answered with this error. Known by its class where the application is bundled with ioredis, as a minifier
 * renames classes and with them their errors; by its name where the application has an ioredis of its own.
 */
export function isReplyError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return error.name === 'ReplyError' || (typeof replyError === 'function' && error instanceof replyError);
}

/** The message of an error of ioredis, without anything that may hold a password. */
export function problemOfIoredis(error: unknown): string {
  const problem = problemOf(error);
  return problem.startsWith('Reached the max retries per request')
    ? 'the connection broke before the answer came'
    : problem;
}

/** The fault of a command that ioredis rejected with this error. */
export function faultOf(error: unknown): CommandFault {
  const problem = problemOfIoredis(error);
  if (isReplyError(error)) return new CommandFault(problem, 'refused');
  // The user has set ioredis' option `commandTimeout`.
  return new CommandFault(problem, problem === 'Command timed out' ? 'overdue' : 'disconnected');
}
