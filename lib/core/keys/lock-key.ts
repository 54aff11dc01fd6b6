import { LockKeyError } from '../../api/errors.js';
import { checkKey, keyPart, UnfitPart } from './key.js';

/**
 * Makes a key as the templates of `@Locked` do, for `LockService` and key functions: lockKey`order:${id}` is the key of
 * `order:{0}`. Values are escaped, so that ('x:y', 'z') and ('x', 'y:z') make two keys.
 * @throws LockKeyError for a value that is empty or has no string form, and for a key over 1 KiB
 */
export function lockKey(literals: TemplateStringsArray, ...values: unknown[]): string {
  const parts = values.map((value, index) => {
    try {
      return keyPart(value) + literals[index + 1]!;
    } catch (cause) {
      const problem =
        cause instanceof UnfitPart ? `${cause.message}. ${cause.advice}` : 'cannot be read. See the cause.';
      throw new LockKeyError(`A key "${literals.join('…')}" cannot be made: value ${index} ${problem}`, 500, {
        cause,
      });
    }
  });
  const key = literals[0]! + parts.join('');
  checkKey(key);
  return key;
}
