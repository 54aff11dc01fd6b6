import { LockOptionsError } from '../api/errors.js';
import { quoted } from '../api/printable.js';
import { checkFencingToken } from './fencing-token.js';
import { StaleTokenError, type StaleTokenDetails } from './stale-token.error.js';

/** The source of a write's token: a `Lock`, or a statement of `fencedUpdate` or `fencedUpsert`. */
export interface FencedWrite extends Pick<StaleTokenDetails, 'key' | 'resource' | 'isCertain'> {
  readonly fencingToken: number;
}

/**
 * Throws unless a fenced write has changed its row. Exactly one: of several, some may have been refused.
 * @param changedRows how many rows it changed or returned, as the driver reports
 * @param write the statement, or the lock when the statement is your own
 * @throws StaleTokenError when it changed none
 * @throws LockOptionsError when that is neither 1 nor 0, so that it is unknown whether it was written as intended
 */
export function assertFenced(changedRows: number | null | undefined, write: FencedWrite): void {
  checkFencingToken(write.fencingToken);
  if (changedRows === 1) return;
  if (changedRows !== 0) {
    const got = typeof changedRows === 'number' ? changedRows : changedRows === null ? 'null' : typeof changedRows;
    throw new LockOptionsError(
      `assertFenced needs the number of rows that were changed, which is 1 or 0 for a write to one row: got ${got}. ` +
        'Pass rows.length of a fenced statement, or the count of your driver.',
    );
  }
  const { fencingToken, key, resource, isCertain = false } = write;
  throw new StaleTokenError(fencingToken, { key, resource: resource && quoted(resource), isCertain });
}
