import { LockKeyError, lockKey } from 'nest-redis-lock';
import { expect, it } from 'vitest';

it.each([undefined, null, '', {}, ['a'], Number.NaN, Symbol('s')])(
  'refuses %o, and says which value it was',
  (value) => {
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow(LockKeyError);
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow('value 1');
  },
);
