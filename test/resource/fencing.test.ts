import {
  assertFenced,
  fencedUpdate,
  fencedUpsert,
  fencingHeaders,
  LockKeyError,
  LockOptionsError,
  readFencingHeader,
} from 'nest-redis-lock';
import { expect, it } from 'vitest';

const TOKEN = 1_790_000_000_000_000;

it('a fenced statement has no value in its text, and quotes in names are doubled [G33]', () => {
  const evil = `tea'; DROP TABLE stock; --`;
  const { text, values } = fencedUpdate({
    table: 'st"ock',
    set: { [`boxes" = 0, "sku`]: evil },
    where: { sku: evil },
    fence: TOKEN,
  });
  expect(text).not.toContain('DROP');
  expect(text).not.toContain(String(TOKEN));
  expect(text).toContain('UPDATE "st""ock" SET "boxes"" = 0, ""sku" = $2');
  expect(values).toEqual([evil, evil, TOKEN]);
});

const row = { table: 'stock', set: { boxes: 3 }, where: { sku: 'tea' }, fence: TOKEN };
it.each<[got: string, row: unknown, problem: string]>([
  ['no argument', undefined, 'a fenced write must be an object with table, where and fence: got undefined.'],
  ['no table', { where: { sku: 5 }, fence: 33 }, 'table must be the name of a table: got undefined.'],
  ['no where', { table: 'stock', fence: 33 }, 'needs a where that identifies one row'],
  ['a where that is null', { table: 'stock', where: null, fence: 33 }, 'needs a where that identifies one row'],
])('a fenced write with %s is refused with an explanation', (_got, row, problem) => {
  for (const make of [fencedUpdate, fencedUpsert]) {
    const making = () => make(row as never);
    expect(making).toThrow(LockOptionsError);
    expect(making).toThrow(problem);
  }
});

it.each<[what: string, change: object, problem: string]>([
  ['no where, which would mean all rows', { where: {} }, 'identifies one row'],
  ['a where that is null, and equals nothing', { where: { sku: null } }, 'must not be null'],
  ['a where that is undefined', { where: { sku: undefined } }, 'is undefined'],
  ['a value that is undefined, which drivers write as NULL', { set: { boxes: undefined } }, 'is undefined'],
  [
    'the fence among the columns to set',
    { set: { fence: 1 } },
    'Only the fence writes the column "fence": leave it out',
  ],
  [
    'the fence among the columns of where',
    { where: { fence: 1 } },
    'Only the fence writes the column "fence": leave it out',
  ],
  ['a column in where and in set', { set: { sku: 'coffee' } }, 'both in where and in set'],
  ['a token that is no number', { fence: '17' }, 'got string'],
  ['no token', { fence: undefined }, 'got undefined'],
  ['a token that was rounded', { fence: 2 ** 53 }, '2^53'],
  ['a token with a fraction', { fence: 1.5 }, 'got 1.5'],
  ['a token below zero', { fence: -1 }, 'got -1'],
  ['an empty name', { table: '' }, '1 to 63 bytes'],
  ['an empty part of a name', { table: 'shop.' }, '1 to 63 bytes'],
  ['a name that PostgreSQL would cut off', { column: 'ü'.repeat(32) }, '1 to 63 bytes'],
  ['a name with a NUL', { set: { 'a\0b': 1 } }, '1 to 63 bytes'],
])('a fenced statement is refused for %s', (_what, change, problem) => {
  for (const make of [fencedUpdate, fencedUpsert]) {
    const making = () => make({ ...row, ...change } as never);
    expect(making).toThrow(LockOptionsError);
    expect(making).toThrow(problem);
  }
});

it('assertFenced refuses a write that has changed no row, with an error that says whether a newer token is the reason', () => {
  const row = { table: 'stock', where: { sku: 'tea' }, fence: 33 };
  assertFenced(1, fencedUpdate(row));
  for (const [write, isCertain, message] of [
    [fencedUpdate(row), false, 'has seen a newer one, or has no such row'],
    [fencedUpsert(row), true, '33 is too old: "stock" has seen a newer one.'],
  ] as const) {
    const error = { status: 412, fencingToken: 33, isCertain, message: expect.stringContaining(message) };
    expect(() => assertFenced(0, write)).toThrow(expect.objectContaining(error));
  }
  expect(() => assertFenced(1, {} as never)).toThrow(LockOptionsError);
});

it.each([[null], [undefined], [Number.NaN], [-1], [0.5], [2], ['1'], [true], [[{ fence: 33 }]]])(
  'assertFenced does not accept %j as the number of rows that a write to one row has changed',
  (changedRows) => {
    expect(() => assertFenced(changedRows as never, { fencingToken: 33 })).toThrow(LockOptionsError);
  },
);

it.each(['order:17', 'a=1, b=2', '100 %', '%3A', 'ключ:🔑', ' ', '"', 'line\nbreak', 'a\0b', '='])(
  'the Fencing-Token header carries the key %j as it is, in a header that fetch takes',
  (key) => {
    const headers = new Headers(fencingHeaders({ key, fencingToken: TOKEN }));
    expect(readFencingHeader(headers.get('fencing-token')!)).toEqual({ key, fencingToken: TOKEN });
  },
);

it('the header names key and token, up to the largest, and invalid keys or tokens are refused', () => {
  const largest = { key: 'order:17', fencingToken: Number.MAX_SAFE_INTEGER };
  expect(fencingHeaders(largest)).toEqual({ 'Fencing-Token': 'order:17=9007199254740991' });
  expect(readFencingHeader('order:17=9007199254740991')).toEqual(largest);
  for (const key of ['', '\ud800']) expect(() => fencingHeaders({ key, fencingToken: TOKEN })).toThrow(LockKeyError);
  for (const fencingToken of [undefined as never, 2 ** 53])
    expect(() => fencingHeaders({ key: 'k', fencingToken })).toThrow(LockOptionsError);
});

it('a header of another form is not read', () => {
  const others = [
    '',
    '17',
    '=17',
    'k=',
    'k=1.5',
    'k=-1',
    'k=+1',
    'k=017',
    'k=1e3',
    'k=0x1',
    'k=9007199254740992',
    'k=1, k=2',
  ];
  others.push(
    'k=99999999999999999999',
    'k=1=2',
    'a b=1',
    ' k=1',
    'k=1 ',
    'k=1\n',
    '%zz=1',
    '%7Dk=1',
    `${'k'.repeat(1_025)}=1`,
  );
  expect(others.filter((value) => readFencingHeader(value) !== undefined)).toEqual([]);
});
