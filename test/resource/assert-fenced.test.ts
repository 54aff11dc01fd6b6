import { assertFenced, LockError, LockOptionsError, StaleTokenError } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';

function refusalOf(changedRows: number, write: Parameters<typeof assertFenced>[1]): StaleTokenError {
  try {
    assertFenced(changedRows, write);
  } catch (error) {
    return error as StaleTokenError;
  }
  throw new Error('It was not refused.');
}

describe('assertFenced', () => {
  it('refuses what has changed none, in the form of the other errors', () => {
    const error = refusalOf(0, { key: 'product:tea', fencingToken: 33 });
    expect(error).toBeInstanceOf(StaleTokenError);
    expect(error).toBeInstanceOf(LockError);
    expect(error).toMatchObject({
      name: 'StaleTokenError',
      code: 'LOCK_STALE_TOKEN',
      status: 412,
      statusCode: 412,
      expose: false,
      fencingToken: 33,
      key: 'product:tea',
      isCertain: false,
    });
  });

  it.each([[null], [undefined], [Number.NaN], [-1], [0.5], [2], ['1'], [true], [[{ fence: 33 }]]])(
    'does not take %j for the number of rows that a write to one row has changed',
    (changedRows) => {
      expect(() => assertFenced(changedRows as never, { fencingToken: 33 })).toThrow(LockOptionsError);
    },
  );
});
