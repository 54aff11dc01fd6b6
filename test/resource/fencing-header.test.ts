import { fencingHeaders, LockKeyError, LockOptionsError, readFencingHeader } from 'nest-redis-lock';
import { expect, it } from 'vitest';

const TOKEN = 1_790_000_000_000_000;

it.each(['order:17', 'a=1, b=2', '100 %', '%3A', 'ключ:🔑', ' ', '"', 'line\nbreak', 'a\0b', '='])(
  'the Fencing-Token header carries the key %j as it is, in a header that fetch takes',
  (key) => {
    const headers = new Headers(fencingHeaders({ key, fencingToken: TOKEN }));
    expect(readFencingHeader(headers.get('fencing-token')!)).toEqual({ key, fencingToken: TOKEN });
  },
);

it('the header names key and token, up to the largest, and what is no key or no token is refused', () => {
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
