import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LockError, lockKey, LockKeyError, LockOptionsError, type Lock } from '../../lib/index.js';
import { KeyTemplate } from '../../lib/core/keys/key.js';
import { resolveOptions } from '../../lib/compose/composition.js';
import { REDIS } from '../../lib/compose/redis-lock-options.js';
import { openLocks } from '../support/open-locks.js';
import { fuzz } from './seeds.js';

const RUNS = 400;
const NASTY = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  '{',
  '}',
  '{0}',
  '{0.a}',
  '{body.__proto__.x}',
  ':',
  '%',
];

const word = fc.oneof(fc.string(), fc.constantFrom(...NASTY));
const template = fc.oneof(
  fc.array(word, { maxLength: 5 }).map((words) => words.join('')),
  fc
    .array(
      fc.oneof(
        word,
        fc.tuple(fc.constantFrom('0', '1', 'body', 'params', 'user'), word).map(([root, name]) => `{${root}.${name}}`),
      ),
    )
    .map((words) => words.join(':')),
);
const value = fc.anything({
  key: word,
  withBigInt: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withTypedArray: true,
  withSparseArray: true,
});

/** Its result, or its error if the library threw it; it rethrows all other errors. */
function outcome<T>(call: () => T): T | LockError {
  try {
    return call();
  } catch (error) {
    if (error instanceof LockError) return error;
    throw error;
  }
}

function sharedObjects(): unknown[] {
  return [Object.prototype, Array.prototype, Function.prototype, String.prototype].map((shared) => [
    ...Reflect.ownKeys(shared),
  ]);
}

describe('whatever it is given', () => {
  it('a key template makes a key that is in one hash tag, or says what is wrong [G133]', async () => {
    const before = sharedObjects();
    await fuzz(
      fc.property(template, value, value, (text, first, second) => {
        const key = outcome(() => new KeyTemplate(text).render((root) => (root === '0' ? first : second)));
        const isKey = typeof key === 'string' && key !== '' && !key.startsWith('}') && Buffer.byteLength(key) <= 1024;
        expect(isKey || key instanceof LockKeyError || key instanceof LockOptionsError).toBe(true);
      }),
      RUNS,
    );
    expect(sharedObjects()).toEqual(before);
  });

  it('a key template never shows what all objects inherit [G134]', async () => {
    await fuzz(
      fc.property(value, fc.constantFrom('__proto__', 'constructor', 'prototype'), word, (given, name, rest) => {
        expect(outcome(() => new KeyTemplate(`{0.${name}.${rest}}`).render(() => given))).toBeInstanceOf(LockError);
      }),
      RUNS / 4,
    );
  });

  it('two pairs of values never make the same key of a template [G132]', async () => {
    const part = fc.oneof(
      fc.string({ minLength: 1, maxLength: 4 }),
      fc.constantFrom(':', '%3A', '%', 'a:b', '{', '}x'),
    );
    const make = (a: string, b: string) => outcome(() => lockKey`k:${a}:${b}`);
    await fuzz(
      fc.property(part, part, part, part, (a, b, c, d) => {
        expect(make(a, b) === make(c, d)).toBe(a === c && b === d);
      }),
      RUNS,
    );
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 2, min: 120, max: 136 });
    await fuzz(
      fc.property(bytes, bytes, (a, b) => {
        expect(lockKey`k:${Buffer.from(a)}` === lockKey`k:${b}`).toBe(Buffer.compare(a, b) === 0);
      }),
      RUNS,
    );
  });

  it('options are resolved within their bounds, or the error says which one is wrong [G135]', async () => {
    const before = sharedObjects();
    const names = [
      'ttlMs',
      'waitMs',
      'watchdog',
      'keyPrefix',
      'commandTimeoutMs',
      'marginMs',
      'fair',
      'onLost',
      'redis',
      'redlock',
      'memory',
    ];
    const number = fc.oneof(fc.integer(), fc.double(), fc.constantFrom(0, -0, NaN, Infinity, 2 ** 31, 30_000));
    const options = fc.dictionary(fc.constantFrom(...names, '__proto__', 'nonsense'), fc.oneof(number, value, word));
    await fuzz(
      fc.property(fc.oneof(options, value), (given) => {
        const resolved = outcome(() => resolveOptions(REDIS, given as never));
        const isSane =
          !(resolved instanceof LockError) &&
          Number.isInteger(resolved.ttlMs) &&
          resolved.ttlMs >= 20 &&
          resolved.ttlMs <= 86_400_000 &&
          resolved.keyPrefix !== '';
        expect(isSane || resolved instanceof LockOptionsError).toBe(true);
      }),
      RUNS,
    );
    expect(sharedObjects()).toEqual(before);
  });

  it('the options of a call are accepted, or refused as options', async () => {
    const locks = await openLocks({ memory: true });
    const names = fc.oneof(word, fc.constantFrom('ttlMs', 'watchdog', 'holdMs', 'maxHoldMs', 'mode', 'signal'));
    await fuzz(
      fc.asyncProperty(fc.dictionary(names, value), async (given) => {
        const result: unknown = await locks.tryAcquire('key', given).catch((error: unknown) => error);
        await (result as Partial<Lock> | null)?.release?.();
        expect(result === null || result instanceof LockOptionsError || Object(result).isHeld === false).toBe(true);
      }),
      RUNS / 2,
    );
  });

  it('a URL is accepted, or refused without being shown [G136]', async () => {
    const SECRET = 'hunter2hunter2';
    const url = fc.oneof(
      fc.webUrl(),
      fc.tuple(word, word).map(([a, b]) => `${a}:${SECRET}@${b}`),
      fc
        .tuple(fc.constantFrom('redis', 'rediss', 'http', ''), word, word)
        .map(([scheme, host, rest]) => `${scheme}://u:${SECRET}@${host}/${rest}`),
    );
    await fuzz(
      fc.property(url, (redis) => {
        const resolved = outcome(() => resolveOptions(REDIS, { redis }));
        expect(resolved instanceof LockError ? resolved.message : '').not.toContain(SECRET);
        expect(resolved instanceof LockError || /^(rediss?:\/\/|\/)/.test(redis)).toBe(true);
      }),
      RUNS,
    );
  });
});
