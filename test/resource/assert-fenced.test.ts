import {
  assertFenced,
  fencedUpdate,
  fencedUpsert,
  LockError,
  LockOptionsError,
  StaleTokenError,
} from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';

const ROW = { table: 'stock', where: { sku: 'tea' }, fence: 33 };

function refusalOf(changedRows: number, write: Parameters<typeof assertFenced>[1]): StaleTokenError {
  try {
    assertFenced(changedRows, write);
  } catch (error) {
    return error as StaleTokenError;
  }
  throw new Error('It was not refused.');
}

describe('assertFenced', () => {
  it('lets pass what has changed a row', () => {
    assertFenced(1, fencedUpdate(ROW));
    assertFenced(1, { fencingToken: 33 });
  });

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

  it('says of an update that the row may be missing, of an upsert that the token is too old', () => {
    const update = refusalOf(0, fencedUpdate(ROW));
    expect(update.isCertain).toBe(false);
    expect(update.message).toContain('"stock" has seen a newer one, or has no such row');
    const upsert = refusalOf(0, fencedUpsert(ROW));
    expect(upsert.isCertain).toBe(true);
    expect(upsert.message).toContain('33 is too old: "stock" has seen a newer one.');
  });

  it.each([[null], [undefined], [Number.NaN], [-1], [0.5], [2], ['1'], [true], [[{ fence: 33 }]]])(
    'does not take %j for the number of rows that a write to one row has changed',
    (changedRows) => {
      expect(() => assertFenced(changedRows as never, { fencingToken: 33 })).toThrow(LockOptionsError);
    },
  );

  it('does not take a lock without a token', () => {
    expect(() => assertFenced(1, {} as never)).toThrow(LockOptionsError);
  });
});
