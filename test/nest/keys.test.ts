import { runInNewContext } from 'node:vm';
import type { Type } from '@nestjs/common';
import { fromContext, Locked, LockKeyError, LockOptionsError } from 'nest-redis-lock';
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

/** Calls a method with this key, and tells which lock it ran under. */
async function keyOf(key: AnyKey, ...args: unknown[]): Promise<string | undefined> {
  const Any = lockerOf(key);
  const { app, acquired } = await makeApp({ providers: [Any] });
  await app.get(Any).run(...args);
  return acquired[0];
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

class ObjectId {
  constructor(private readonly hex: string) {}
  toString(): string {
    return this.hex;
  }
}

class Money {
  constructor(private readonly cents: bigint) {}
  get euros(): string {
    return `${this.cents / 100n}`;
  }
}

describe('a key of arguments', () => {
  it.each<[template: string, args: unknown[], key: string]>([
    ['static', ['ignored'], 'static'],
    ['order:{0}', ['7'], 'order:7'],
    ['order:{0}', [7], 'order:7'],
    ['order:{0}', [0], 'order:0'],
    ['order:{0}', [2n ** 70n], 'order:1180591620717411303424'],
    ['order:{0}', [false], 'order:false'],
    ['order:{1}:{0}', ['a', 'b'], 'order:b:a'],
    ['{0}{0}', ['a'], 'aa'],
    ['order:{0.customer.id}', [{ customer: { id: 7 } }], 'order:7'],
    ['order:{1.items.0}', [undefined, { items: ['first'] }], 'order:first'],
    ['order:{1.items.length}', [undefined, { items: ['first'] }], 'order:1'],
    ['order:{0.id}', [Object.assign(Object.create(null), { id: 'bare' })], 'order:bare'],
    ['order:{0}', [new ObjectId('5f1d')], 'order:5f1d'],
    ['order:{0}', [new Date(86_400_000)], 'order:1970-01-02T00%3A00%3A00.000Z'],
    ['order:{0}', [Buffer.from('0193a5c4d7e87a80', 'hex')], 'order:0193a5c4d7e87a80'],
    ['order:{0}', [new Uint8Array([0, 58, 255])], 'order:003aff'],
    ['order:{0}', [new DataView(Uint8Array.of(1, 2, 3).buffer, 1)], 'order:0203'],
    ['order:{0}', [runInNewContext('new Uint16Array([0x8080, 0xc1c1])')], 'order:8080c1c1'],
    ['order:{0}', [new URL('redis://h/1')], 'order:redis%3A//h/1'],
    ['order:{0.euros}', [new Money(500n)], 'order:5'],
    ['order:{0}', ['ключ 🔑'], 'order:ключ 🔑'],
    ['order:$:{0}$', ['7'], 'order:$:7$'],
    ['order:{0}', ['${x}'], 'order:$%7Bx%7D'],
    ['order:{0}', ['a{b}c'], 'order:a%7Bb%7Dc'],
    ['{0}', ['}'], '%7D'],
    ['order:{0}', ['100%'], 'order:100%25'],
    ['order:{0}', ['%3A'], 'order:%253A'],
  ])('%s with %o', async (template, args, key) => {
    expect(await keyOf(template, ...args)).toBe(key);
  });

  it('keeps apart parts that look the same when they are joined', async () => {
    expect(await keyOf('{0}:{1}', 'x:y', 'z')).not.toBe(await keyOf('{0}:{1}', 'x', 'y:z'));
    expect(await keyOf('{0}:{1}', 'x%3Ay', 'z')).not.toBe(await keyOf('{0}:{1}', 'x:y', 'z'));
  });

  it('tells dates apart that fall in one second, also those of another realm', async () => {
    const date = runInNewContext('new Date(1)') as Date;
    expect(await keyOf('{0}', date)).toBe('1970-01-01T00%3A00%3A00.001Z');
  });

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

  it('is refused with the method named, and what to do', async () => {
    expect((await refusalOf('order:{0.id}', {})).message).toBe(
      '@Locked on AnyLocker.run: the key "order:{0.id}" cannot be made: {0.id} is undefined. ' +
        'Pass a value, or check it beforehand. The method did not run.',
    );
    expect((await refusalOf('order:{0}', { id: 1 })).message).toContain(
      '{0} is an object without a string form. Name a part of it that is a string or a number. ',
    );
  });

  it('names the cause when a getter throws', async () => {
    const cause = new Error('broken getter');
    const error = await refusalOf('{0.id}', {
      get id(): never {
        throw cause;
      },
    });
    expect(error.cause).toBe(cause);
  });

  it('may be 1 KiB long and no longer, in bytes', async () => {
    expect(await keyOf('{0}', 'x'.repeat(1_024))).toHaveLength(1_024);
    expect((await refusalOf('{0}', 'x'.repeat(1_025))).message).toContain('longer than 1024 bytes: got 1025');
    expect(await keyOf('{0}', 'é'.repeat(512))).toHaveLength(512);
    expect((await refusalOf('{0}', 'é'.repeat(513))).message).toContain('longer than 1024 bytes: got 1026');
  });
});

describe('a key function', () => {
  it('gets the arguments of the method', async () => {
    expect(await keyOf((id, order) => `${id}:${(order as { sku: string }).sku}`, 5, { sku: 'a' })).toBe('5:a');
  });

  it.each<[got: unknown, problem: string]>([
    [
      undefined,
      '@Locked on AnyLocker.run: the key function returned nothing: return a string, or an array of strings. The method did not run.',
    ],
    [null, 'the key function returned null: return a string, or an array of strings.'],
    ['', "the key of a lock must be a non-empty string: got ''."],
    [5, 'the key function returned a value of type number: return a string, or an array of strings.'],
    [{}, 'the key function returned a value of type object: return a string, or an array of strings.'],
    [Promise.resolve('x'), 'the key function returned a Promise: return a string, or an array of strings.'],
    ['}', 'must not begin with "}"'],
    ['order 😀'.slice(0, -1), 'which has half a character. Was a text cut in the middle of an emoji?'],
    ['x'.repeat(1_025), 'must not be longer than 1024 bytes'],
  ])('that returns %o is refused, and the method does not run', async (got, problem) => {
    expect((await refusalOf(() => got as string)).message).toContain(problem);
  });

  it('that returns a Promise which fails is refused, and the failure does not end the process', async () => {
    const failing = async () => Promise.reject(new Error('no sku'));
    expect((await refusalOf(failing as unknown as () => string)).message).toContain('returned a Promise');
    await new Promise(setImmediate); // unhandled rejections are told by now, and fail the run
  });

  it('that throws is refused with its error as the cause, and the method does not run', async () => {
    const cause = new TypeError('no sku');
    const error = await refusalOf(() => {
      throw cause;
    });
    expect(error.message).toBe('@Locked on AnyLocker.run: the key function failed. The method did not run.');
    expect([error.cause, error.status]).toEqual([cause, 500]);
  });
});

describe('a class is refused, and the method named, for the key', () => {
  it.each<[key: unknown, problem: string]>([
    ['', 'the key "" cannot be read: it is empty.'],
    [
      undefined,
      'the key must be a string, an array of strings, or a function that returns one of them: got undefined.',
    ],
    [5, 'the key must be a string, an array of strings, or a function that returns one of them: got 5.'],
    ['order:{', 'a brace has no counterpart.'],
    ['order:}', 'a brace has no counterpart.'],
    ['order:{0', 'a brace has no counterpart.'],
    ['order:{{0}}', 'a brace has no counterpart.'],
    ['order:{}', '{} begins with neither the index of an argument nor params, body,'],
    ['order:{ 0 }', '{ 0 } begins with neither'],
    ['order:{-1}', '{-1} begins with neither'],
    ['order:{id}', '{id} begins with neither'],
    ['order:{param.id}', '{param.id} begins with neither'],
    ['order:{0.}', '{0.} is not a path.'],
    ['order:{0..a}', '{0..a} is not a path.'],
    ['order:{0.__proto__.a}', '{0.__proto__.a} is not a path.'],
    ['order:{0.constructor.name}', '{0.constructor.name} is not a path.'],
    ['order:{body.prototype}', '{body.prototype} is not a path.'],
    ['order:${0}', '"${" belongs to template literals, here write "{" alone.'],
    ['order:${params.id}', '"${" belongs to template literals, here write "{" alone.'],
    ['order:{0}:{params.id}', 'it mixes arguments of the method and parts of the request.'],
    ['order:{params}', '{params} needs a path: {params.id}.'],
    ['order:{query}', '{query} needs a path: {query.id}.'],
    ['x'.repeat(1_025), 'must not be longer than 1024 bytes'],
  ])('%o', (key, problem) => {
    const define = () => lockerOf(key as string);
    expect(define).toThrow(LockOptionsError);
    expect(define).toThrow(/^@Locked on AnyLocker.run: /);
    expect(define).toThrow(problem);
  });
});

it('refuses a method with a key of the context that is called without one', async () => {
  class Handlers {
    ran = false;
    @Locked(fromContext(() => 'x'))
    async run(): Promise<void> {
      this.ran = true;
    }
  }
  const { app } = await makeApp({ providers: [Handlers] });
  await expect(app.get(Handlers).run()).rejects.toThrow('Handlers.run was called without LockedInterceptor');
  expect(app.get(Handlers).ran).toBe(false);
});
