import { LockKeyError } from '../../api/errors.js';

const MAX_KEY_BYTES = 1024;

/** @throws LockKeyError for a key that is empty, over 1 KiB, or that Redis Cluster would misread */
export function checkKey(key: unknown, status: 400 | 500 = 500): asserts key is string {
  if (typeof key !== 'string' || key === '') {
    throw new LockKeyError(
      `The key of a lock must be a non-empty string: got ${key === '' ? "''" : typeof key}.`,
      status,
    );
  }
  if (key.length > MAX_KEY_BYTES / 4 && Buffer.byteLength(key) > MAX_KEY_BYTES) {
    throw new LockKeyError(
      `The key of a lock must not be longer than ${MAX_KEY_BYTES} bytes: got ${Buffer.byteLength(key)}, ` +
        `beginning with "${key.slice(0, 40)}". Use an id or a hash instead.`,
      status,
    );
  }
  if (key[0] === '}') {
    throw new LockKeyError(
      `The key of a lock must not begin with "}" (it would end the hash tag): got "${key}".`,
      status,
    );
  }
}
