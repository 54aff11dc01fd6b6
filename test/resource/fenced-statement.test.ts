import { fencedUpdate, fencedUpsert, LockOptionsError } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';

const TOKEN = 1_790_000_000_000_000;

describe('a fenced statement', () => {
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
  it.each<[what: string, change: object, problem: string]>([
    ['no where, which would mean all rows', { where: {} }, 'identifies one row'],
    ['a where that is null, and equals nothing', { where: { sku: null } }, 'must not be null'],
    ['a where that is undefined', { where: { sku: undefined } }, 'is undefined'],
    ['a value that is undefined, which drivers write as NULL', { set: { boxes: undefined } }, 'is undefined'],
    ['the fence among the columns to set', { set: { fence: 1 } }, 'by the fence alone: leave it out'],
    ['the fence among the columns of where', { where: { fence: 1 } }, 'by the fence alone: leave it out'],
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
  ])('refuses %s', (_what, change, problem) => {
    for (const make of [fencedUpdate, fencedUpsert]) {
      const making = () => make({ ...row, ...change } as never);
      expect(making).toThrow(LockOptionsError);
      expect(making).toThrow(problem);
    }
  });
});
