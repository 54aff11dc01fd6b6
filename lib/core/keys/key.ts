import { types } from 'node:util';
import { LockKeyError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';

const MAX_KEY_BYTES = 1024;
/** All are asked for at once. */
const MAX_KEYS = 100;

/** @throws LockKeyError for a key that is empty, over 1 KiB, or that Redis Cluster would misread */
export function checkKey(key: unknown, status: 400 | 500 = 500): asserts key is string {
  if (typeof key !== 'string' || key === '') {
    const kind = key === null ? 'null' : typeof key;
    const got = key === '' ? "''" : Array.isArray(key) ? 'an array; for several keys use acquireAll' : kind;
    throw new LockKeyError(`The key of a lock must be a non-empty string: got ${got}.`, status);
  }
  if (key.length > MAX_KEY_BYTES / 4 && Buffer.byteLength(key) > MAX_KEY_BYTES) {
    throw new LockKeyError(
      `The key of a lock must not be longer than ${MAX_KEY_BYTES} bytes: got ${Buffer.byteLength(key)}, ` +
        `beginning with ${quoted(key.slice(0, 40))}. Use an id or a hash instead.`,
      status,
    );
  }
  if (key[0] === '}') {
    throw new LockKeyError(
      `The key of a lock must not begin with "}", as stores put it in braces: got ${quoted(key)}.`,
      status,
    );
  }
}

/**
 * The keys of a set of locks, each once, in the order in which all calls acquire them: then none waits for one that waits for it
 * (Havender, Avoiding deadlock in multitasking systems, 1968).
 * @throws LockKeyError for a list that is empty or too long, and for keys as `checkKey`
 */
export function checkKeys(keys: readonly unknown[], status: 400 | 500 = 500): string[] {
  for (const key of keys) checkKey(key, status);
  const set = [...new Set(keys as string[])].sort(); // by code units
  if (set.length > 0 && set.length <= MAX_KEYS) return set;
  throw new LockKeyError(`A set of locks has 1 to ${MAX_KEYS} keys: got ${set.length}.`, status);
}

/** Why a value cannot be a part of a key. */
export class UnfitPart extends Error {
  constructor(
    message: string,
    /** Advice on a value that has no string form; by default there is no value. */
    readonly advice?: string,
  ) {
    super(message);
  }
}

/** The advice to a caller that passed no value. */
export const PASS_A_VALUE = 'Pass a value, or check it beforehand.';

/**
 * The form of a value in a key, escaped so that values never run into each other.
 * @throws UnfitPart for a value that is empty or has no string form of its own
 */
export function keyPart(value: unknown): string {
  return stringForm(value).replace(/[%:{}]/g, (char) => '%' + char.charCodeAt(0).toString(16).toUpperCase());
}

function stringForm(value: unknown): string {
  switch (typeof value) {
    case 'string':
      if (value === '') throw new UnfitPart('is empty');
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw new UnfitPart(`is ${value}`);
      return String(value);
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      if (value !== null) return objectForm(value);
  }
  throw new UnfitPart(
    `is ${value === null ? 'null' : typeof value === 'undefined' ? 'undefined' : `a ${typeof value}`}`,
  );
}

/** Dates, ids and the like have a string form of their own; plain objects and lists would all look the same. */
function objectForm(value: object): string {
  if (types.isDate(value)) return value.toISOString(); // also one of another realm, as in Jest
  const { toString } = value; // oxlint-disable-line typescript/unbound-method -- called with its object below
  if (Array.isArray(value)) throw new UnfitPart('is a list', 'Name one of its items.');
  if (typeof toString !== 'function' || toString === Object.prototype.toString) {
    throw withoutForm();
  }
  const form: unknown = toString.call(value);
  if (typeof form !== 'string' || form === '' || form === '[object Object]') throw withoutForm();
  return form;
}

function withoutForm(): UnfitPart {
  return new UnfitPart('is an object without a string form', 'Name a part of it that is a string or a number.');
}
