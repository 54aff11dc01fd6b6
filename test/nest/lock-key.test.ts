import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Locked, LockKeyError, lockKey, LockService, RedisLockModule } from 'nest-redis-lock';
import { expect, it } from 'vitest';

@Injectable()
class Orders {
  constructor(readonly locks: LockService) {}

  @Locked('order:{0}:{1}')
  async key(_first: unknown, _second: unknown): Promise<string> {
    return this.locks.current().key;
  }
}

it.each([
  ['x:y', 'z'],
  ['x', 'y:z'],
  ['50 %', '{a}'],
  [7, true],
  [12n, new Date(0)],
])('makes the key that the template makes of %o and %o', async (first, second) => {
  const testing = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ memory: true })],
    providers: [Orders],
  }).compile();
  expect(lockKey`order:${first}:${second}`).toBe(await testing.get(Orders).key(first, second));
  await testing.close();
});

it('makes a key of words alone', () => {
  expect(lockKey`nightly`).toBe('nightly');
});

it.each([undefined, null, '', {}, ['a'], Number.NaN, Symbol('s')])(
  'refuses %o, and says which value it was',
  (value) => {
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow(LockKeyError);
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow('value 1');
  },
);

it('refuses a key over 1 KiB', () => {
  expect(() => lockKey`order:${'x'.repeat(1_100)}`).toThrow(LockKeyError);
});
