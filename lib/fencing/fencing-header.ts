import { checkKey } from '../core/keys/key.js';
import { LockKeyError } from '../api/errors.js';
import type { Lock } from '../api/lock.js';
import { checkFencingToken } from './fencing-token.js';

/** The request header that carries a fencing token: `Fencing-Token: order:17=1790000000000000`. */
export const FENCING_TOKEN_HEADER = 'Fencing-Token';

/** The lock that a request claims to be made under. */
export interface FencingClaim {
  /** The key of the lock. */
  key: string;
  fencingToken: number;
}

/**
 * Makes the headers of a request under a lock: `fetch(url, { headers: fencingHeaders(lock), … })`. The key is percent-encoded,
 * except for its colons.
 */
export function fencingHeaders({ key, fencingToken }: Pick<Lock, 'key' | 'fencingToken'>): Record<string, string> {
  checkKey(key);
  checkFencingToken(fencingToken);
  try {
    return { [FENCING_TOKEN_HEADER]: `${encodeURIComponent(key).replaceAll('%3A', ':')}=${fencingToken}` };
  } catch (cause) {
    const problem = 'contains half of a surrogate pair, which no header can carry';
    throw new LockKeyError(`The key ${JSON.stringify(key)} ${problem}.`, 500, { cause });
  }
}

/** Reads a value of the header. @returns undefined for an invalid value, or for several values */
export function readFencingHeader(value: string): FencingClaim | undefined {
  const [, encoded, digits] = /^([^=,\s]+)=(0|[1-9]\d{0,15})$/.exec(value) ?? [];
  if (encoded === undefined || !Number.isSafeInteger(Number(digits))) return undefined;
  try {
    const key: unknown = decodeURIComponent(encoded);
    checkKey(key);
    return { key, fencingToken: Number(digits) };
  } catch {
    return undefined;
  }
}
