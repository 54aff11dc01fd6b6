import {
  assertFenced,
  fencedUpdate,
  fencedUpsert,
  LockError,
  LockOptionsError,
  StaleTokenError,
} from 'nest-redis-lock';
import { expect, it } from 'vitest';

function refusalOf(changedRows: number, write: Parameters<typeof assertFenced>[1]): StaleTokenError {
  try {
    assertFenced(changedRows, write);
  } catch (error) {
    return error as StaleTokenError;
  }
  throw new Error('It was not refused.');
}

it('assertFenced refuses what has changed no row, in the form of the other errors', () => {
  const row = { table: 'stock', where: { sku: 'tea' }, fence: 33 };
  assertFenced(1, fencedUpdate(row));
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
  const update = refusalOf(0, fencedUpdate(row));
  expect([update.isCertain, update.message]).toEqual([
    false,
    expect.stringContaining('has seen a newer one, or has no such row'),
  ]);
  const upsert = refusalOf(0, fencedUpsert(row));
  expect([upsert.isCertain, upsert.message]).toEqual([
    true,
    expect.stringContaining('33 is too old: "stock" has seen a newer one.'),
  ]);
  expect(() => assertFenced(1, {} as never)).toThrow(LockOptionsError);
});

it.each([[null], [undefined], [Number.NaN], [-1], [0.5], [2], ['1'], [true], [[{ fence: 33 }]]])(
  'assertFenced does not take %j for the number of rows that a write to one row has changed',
  (changedRows) => {
    expect(() => assertFenced(changedRows as never, { fencingToken: 33 })).toThrow(LockOptionsError);
  },
);
