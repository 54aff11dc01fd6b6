import { fencingHeaders, LockKeyError, LockOptionsError, readFencingHeader } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';

const TOKEN = 1_790_000_000_000_000;

describe('the Fencing-Token header', () => {
  it('names the key and the token', () => {
    expect(fencingHeaders({ key: 'order:17', fencingToken: TOKEN })).toEqual({
      'Fencing-Token': 'order:17=1790000000000000',
    });
  });

  it.each(['order:17', 'a=1, b=2', '100 %', '%3A', 'ключ:🔑', ' ', '"', 'line\nbreak', 'a\0b', '='])(
    'carries the key %j as it is, in a header that fetch takes',
    (key) => {
      const headers = new Headers(fencingHeaders({ key, fencingToken: TOKEN }));
      expect(readFencingHeader(headers.get('fencing-token')!)).toEqual({ key, fencingToken: TOKEN });
    },
  );

  it('carries the largest token', () => {
    const { 'Fencing-Token': value } = fencingHeaders({ key: 'k', fencingToken: Number.MAX_SAFE_INTEGER });
    expect(value).toBe('k=9007199254740991');
    expect(readFencingHeader(value!)).toEqual({ key: 'k', fencingToken: Number.MAX_SAFE_INTEGER });
  });

  it.each([
    [''],
    ['17'],
    ['=17'],
    ['k='],
    ['k=1.5'],
    ['k=-1'],
    ['k=+1'],
    ['k=017'],
    ['k=1e3'],
    ['k=0x1'],
    ['k=9007199254740992'],
    ['k=99999999999999999999'],
    ['k=1, k=2'],
    ['k=1=2'],
    ['a b=1'],
    [' k=1'],
    ['k=1 '],
    ['k=1\n'],
    ['%zz=1'],
    ['%7Dk=1'],
    [`${'k'.repeat(1_025)}=1`],
  ])('does not read %j', (value) => {
    expect(readFencingHeader(value)).toBeUndefined();
  });

  it('is not made of what is no key or no token', () => {
    expect(() => fencingHeaders({ key: '', fencingToken: TOKEN })).toThrow(LockKeyError);
    expect(() => fencingHeaders({ key: '\ud800', fencingToken: TOKEN })).toThrow(LockKeyError);
    expect(() => fencingHeaders({ key: 'k', fencingToken: undefined as never })).toThrow(LockOptionsError);
    expect(() => fencingHeaders({ key: 'k', fencingToken: 2 ** 53 })).toThrow(LockOptionsError);
  });
});
