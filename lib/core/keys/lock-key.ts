import { LockKeyError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { checkKey, keyPart, PASS_A_VALUE, UnfitPart } from './key.js';

/**
 * Makes a key as the templates of `@Locked` do, for `LockService` and key functions: lockKey`order:${id}` is the key of
 * `order:{0}`. Values are escaped, so ('x:y', 'z') and ('x', 'y:z') make different keys.
 * @throws LockKeyError for a value that is empty or has no string form, and for a key over 1 KiB
 */
export function lockKey(literals: TemplateStringsArray, ...values: unknown[]): string {
  const parts = values.map((value, index) => {
    try {
      return keyPart(value) + literals[index + 1]!;
    } catch (cause) {
      const problem =
        cause instanceof UnfitPart
          ? `${cause.message}. ${cause.advice ?? PASS_A_VALUE}`
          : 'cannot be read. See the cause.';
      throw new LockKeyError(`A key ${quoted(literals.join('…'))} cannot be made: value ${index} ${problem}`, 500, {
        cause,
      });
    }
  });
  const key = literals[0]! + parts.join('');
  checkKey(key);
  return key;
}
