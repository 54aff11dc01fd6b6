import { LockOptionsError } from '../api/errors.js';

/**
 * Checks a fencing token before it is sent: a number that is not a safe integer would be rounded, and then equal its neighbours.
 * @throws LockOptionsError
 */
export function checkFencingToken(token: unknown): asserts token is number {
  if (Number.isSafeInteger(token) && (token as number) >= 0) return;
  const got = typeof token === 'number' ? token : token === null ? 'null' : typeof token;
  throw new LockOptionsError(
    `A fencing token must be an integer from 0 to 2^53 - 1: got ${got}. Pass lock.fencingToken as it is.`,
  );
}
