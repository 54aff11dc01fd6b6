import { runInNewContext } from 'node:vm';
import type { Type } from '@nestjs/common';
import { Locked, LockKeyError } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

type AnyKey = string | ((...args: unknown[]) => string);

interface Locker {
  readonly ran: number;
  run(...args: unknown[]): Promise<void>;
}

function lockerOf(key: AnyKey): Type<Locker> {
  class AnyLocker implements Locker {
    ran = 0;

    @Locked(key)
    async run(..._args: unknown[]): Promise<void> {
      this.ran++;
    }
  }
  return AnyLocker;
}

/** Calls a method whose key cannot be made, and returns the error. */
async function refusalOf(key: AnyKey, ...args: unknown[]): Promise<LockKeyError> {
  const Any = lockerOf(key);
  const { app, acquired } = await makeApp({ providers: [Any] });
  const locker = app.get(Any);
  const error = await locker.run(...args).catch((reason: unknown) => reason);
  expect([locker.ran, acquired]).toEqual([0, []]);
  expect(error).toBeInstanceOf(LockKeyError);
  return error as LockKeyError;
}

describe('a key of arguments', () => {
  it.each<[template: string, args: unknown[], problem: string]>([
    ['{0}', [], '{0} is undefined'],
    ['{0}', [undefined], '{0} is undefined'],
    ['{0}', [null], '{0} is null'],
    ['{0}', [''], '{0} is empty'],
    ['{0}', [NaN], '{0} is NaN'],
    ['{0}', [Infinity], '{0} is Infinity'],
    ['{0}', [Symbol('s')], '{0} is a symbol'],
    ['{0}', [() => 'x'], '{0} is a function'],
    ['{0}', [{ id: 1 }], '{0} is an object without a string form'],
    ['{0}', [runInNewContext('({ id: 1 })')], '{0} is an object without a string form'],
    ['{0}', [Object.create(null)], '{0} is an object without a string form'],
    ['{0}', [{ toString: 'injected' }], '{0} is an object without a string form'],
    ['{0}', [{ toString: () => '' }], '{0} is an object without a string form'],
    ['{0}', [{ toString: () => 5 }], '{0} is an object without a string form'],
    ['{0}', [['a']], '{0} is a list'],
    ['{0}', [new Map()], '{0} is an object without a string form'],
    ['{0}', [runInNewContext('new Map([[1, 2]])')], '{0} is an object without a string form'],
    ['{0}', [new ArrayBuffer(2)], '{0} is an object without a string form'],
    [
      '{0}',
      [
        new (class Id {
          get [Symbol.toStringTag]() {
            return 'Id';
          }
        })(),
      ],
      '{0} is an object without a string form',
    ],
    [
      '{0}',
      [{ toString: () => Buffer.from([0x61, 0x80]).toString() }],
      '{0} is an object whose string form has lost bytes',
    ],
    ['{0}', [Buffer.alloc(0)], '{0} is empty'],
    ['{0}', [Promise.resolve('x')], '{0} is an object without a string form'],
    ['{0}', [new Date(NaN)], '{0} cannot be read'],
    ['{0.a.b}', [{}], '{0.a.b} is undefined'],
    ['{0.a.b}', [null], '{0.a.b} is undefined'],
    ['{0.toString}', ['x'], '{0.toString} is a function'],
    ['{0.hasOwnProperty}', [{}], '{0.hasOwnProperty} is a function'],
    ['{5}', ['x'], '{5} is undefined'],
  ])('%s with %o is refused, and the method does not run', async (template, args, problem) => {
    const error = await refusalOf(template, ...args);
    expect(error.message).toMatch(/^@Locked on AnyLocker\.run: the key .* The method did not run\.$/);
    expect(error.message).toContain(`: the key "${template}" cannot be made: ${problem}. `);
    expect([error.code, error.status]).toEqual(['LOCK_KEY', 500]);
  });
});

describe('a key function', () => {
  it('that returns a Promise which fails is refused, and the failure does not end the process', async () => {
    const failing = async () => Promise.reject(new Error('no sku'));
    expect((await refusalOf(failing as unknown as () => string)).message).toContain('returned a Promise');
    await new Promise(setImmediate); // unhandled rejections are told by now, and fail the run
  });
});
