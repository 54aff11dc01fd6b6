import { LockOptionsError } from '../../../api/errors.js';
import { problemOf } from './problem-of.js';
import { CommandFault } from './redis-client.js';

/** The class of the answers that are errors, once ioredis is loaded. */
let replyError: unknown;

/**
 * Loads ioredis: not before the first Redis is used, since locks in memory need none.
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

/** Not when it lacks something itself. */
function isMissing(error: unknown): boolean {
  const { code, message } = error as NodeJS.ErrnoException;
  return /^(ERR_)?MODULE_NOT_FOUND$/.test(code ?? '') && message.includes("'ioredis'");
}

/**
 * Whether Redis answered with this error. By class where the application was bundled together with ioredis, whose errors
 * are called as their classes, which a minifier renames; by name where the application has an ioredis of its own.
 */
export function isReplyError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return error.name === 'ReplyError' || (typeof replyError === 'function' && error instanceof replyError);
}

/** What an error of ioredis says, in words that cannot hold a password. */
export function problemOfIoredis(error: unknown): string {
  const problem = problemOf(error);
  return problem.startsWith('Reached the max retries per request')
    ? 'the connection broke before the answer came'
    : problem;
}

/** What a command has come to that ioredis rejected with this error. */
export function faultOf(error: unknown): CommandFault {
  const problem = problemOfIoredis(error);
  if (isReplyError(error)) return new CommandFault(problem, 'refused');
  // By the option `commandTimeout`.
  return new CommandFault(problem, problem === 'Command timed out' ? 'overdue' : 'disconnected');
}
