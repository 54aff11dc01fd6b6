import { runInNewContext } from 'node:vm';
import { ModuleRef } from '@nestjs/core';
import { Locked, LockKeyError, lockKey } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { sharedApp } from '../support/nest-app.js';

type AnyKey = string | ((...args: unknown[]) => string);

const test = sharedApp({});

interface Locker {
  readonly ran: number;
  run(...args: unknown[]): Promise<void>;
}

function lockerOf(key: AnyKey): Promise<Locker> {
  class AnyLocker implements Locker {
    ran = 0;

    @Locked(key)
    async run(..._args: unknown[]): Promise<void> {
      this.ran++;
    }
  }
  return test.app.get(ModuleRef).create(AnyLocker);
}

/** Calls a method whose key cannot be built, and returns the error. */
async function refusalOf(key: AnyKey, ...args: unknown[]): Promise<LockKeyError> {
  const locker = await lockerOf(key);
  const error = await locker.run(...args).catch((reason: unknown) => reason);
  expect([locker.ran, test.acquired]).toEqual([0, []]);
  expect(error).toBeInstanceOf(LockKeyError);
  return error as LockKeyError;
}

/** A value whose string form is its hex, like an ObjectId. */
class ObjectId {
  constructor(private readonly hex: string) {}

  get length(): number {
    return this.hex.length;
  }

  toString(): string {
    return this.hex;
  }
}

const MADE: [template: string, args: unknown[], key: string][] = [
  ['static', ['ignored'], 'static'],
  ['order:{0}:{1}', [7, 2n ** 70n], 'order:7:1180591620717411303424'],
  ['order:{1}:{0}', [0, false], 'order:false:0'],
  ['order:{0.customer.id}', [{ customer: { id: 7 } }], 'order:7'],
  ['order:{1.items.0}{1.items.length}', [undefined, { items: ['first'] }], 'order:first1'],
  ['order:{0.id}', [Object.assign(Object.create(null), { id: 'bare' })], 'order:bare'],
  ['order:{0}:{0.length}', [new ObjectId('5f1d')], 'order:5f1d:4'],
  ['order:{0}', [new Date(86_400_000)], 'order:1970-01-02T00%3A00%3A00.000Z'],
  ['order:{0}', [runInNewContext('new Date(1)')], 'order:1970-01-01T00%3A00%3A00.001Z'],
  ['order:{0}', [Buffer.from('0193a5c4d7e87a80', 'hex')], 'order:0193a5c4d7e87a80'],
  ['order:{0}', [new DataView(Uint8Array.of(1, 2, 3).buffer, 1)], 'order:0203'],
  ['order:{0}', [runInNewContext('new Uint16Array([0x8080, 0xc1c1])')], 'order:8080c1c1'],
  ['order:{0}', [new URL('redis://h/1')], 'order:redis%3A//h/1'],
  ['order:$:{0}$', ['ключ 🔑'], 'order:$:ключ 🔑$'],
  ['order:{0}', ['${x}'], 'order:$%7Bx%7D'],
  ['{0}', ['}'], '%7D'],
  ['{0}:{1}', ['100%', '%3A'], '100%25:%253A'],
  ['{0}', ['é'.repeat(512)], 'é'.repeat(512)],
];

it.each(MADE)(
  'the key %s of %o is made from the arguments, so that no two values share one',
  async (template, args, key) => {
    await (await lockerOf(template)).run(...args);
    expect(test.acquired).toEqual([key]);
  },
);

it('lockKey makes the keys that templates make', () => {
  for (const [, [value], key] of MADE.filter(([template]) => template === 'order:{0}')) {
    expect(lockKey`order:${value}`).toBe(key);
  }
});

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
    expect(error.message).toContain(`: the key "${template}" cannot be built: ${problem}. `);
    expect([error.code, error.status]).toEqual(['LOCK_KEY', 500]);
  });
});

describe('a key function', () => {
  it.each<[got: unknown, problem: string]>([
    [undefined, 'the key function returned nothing: return a string, or an array of strings. The method did not run.'],
    ['', "the key of a lock must be a non-empty string: got ''."],
    [5, 'the key function returned a value of type number: return a string, or an array of strings.'],
    ['}', 'must not begin with "}"'],
    ['order 😀'.slice(0, -1), 'which contains half a character. Was the text cut in the middle of an emoji?'],
    ['é'.repeat(513), 'must not be longer than 1024 bytes: got 1026'],
  ])('that returns %o is refused, and the method does not run', async (got, problem) => {
    expect((await refusalOf(() => got as string)).message).toContain(problem);
  });

  it('that throws, as a getter in a path, is refused with its error as the cause', async () => {
    const cause = new TypeError('no sku');
    const fails = (): never => {
      throw cause;
    };
    const error = await refusalOf(fails);
    expect(error.message).toBe('@Locked on AnyLocker.run: the key function failed. The method did not run.');
    const ofGetter = await refusalOf('{0.id}', Object.defineProperty({}, 'id', { get: fails }));
    expect([error.cause, ofGetter.cause]).toEqual([cause, cause]);
  });

  it('that returns a Promise which fails is refused, and the failure does not end the process', async () => {
    const failing = async () => Promise.reject(new Error('no sku'));
    expect((await refusalOf(failing as unknown as () => string)).message).toContain('returned a Promise');
    await new Promise(setImmediate); // unhandled rejections have been reported by now, and fail the run
  });
});

it.each([undefined, null, '', {}, ['a'], Number.NaN, Symbol('s')])(
  'lockKey refuses %o, and says which value it was',
  (value) => {
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow(LockKeyError);
    expect(() => lockKey`order:${'fine'}:${value}`).toThrow('value 1');
  },
);
