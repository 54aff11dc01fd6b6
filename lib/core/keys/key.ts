import { types } from 'node:util';
import { LockKeyError, LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';

const MAX_KEY_BYTES = 1024;
/** Maximum number of keys that one call can lock. */
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
  if (!key.isWellFormed()) {
    throw new LockKeyError(
      `The key of a lock must be text that can be written in UTF-8: got ${quoted(key.slice(0, 40))}, which contains half a character. ` +
        'Was the text cut in the middle of an emoji?',
      status,
    );
  }
  if (key[0] === '}') {
    throw new LockKeyError(
      `The key of a lock must not begin with "}", because stores put keys in braces: got ${quoted(key)}.`,
      status,
    );
  }
}

/**
 * Checks the keys of one call. All calls acquire their locks in the same order, so no two of them wait for each other (Havender, Avoiding
 * deadlock in multitasking systems, 1968).
 * @returns each key once, in that order
 * @throws LockKeyError like `checkKey`; also for a list that is empty or too long
 */
export function checkKeys(keys: readonly unknown[], status: 400 | 500 = 500): string[] {
  for (const key of keys) checkKey(key, status);
  const set = [...new Set(keys as string[])].sort(); // by code units
  if (set.length > 0 && set.length <= MAX_KEYS) return set;
  throw new LockKeyError(`A set of locks has 1 to ${MAX_KEYS} keys: got ${set.length}.`, status);
}

/**
 * Makes a key as the templates of `@Locked` do, for `LockService` and key functions: lockKey`order:${id}` is the key of
 * `order:{0}`. Values are escaped, so ('x:y', 'z') and ('x', 'y:z') make different keys.
 * @throws LockKeyError for a value that is empty or has no string form, and for a key over 1 KiB
 */
export function lockKey(literals: TemplateStringsArray, ...values: unknown[]): string {
  const parts = values.map((value, index) => {
    const refuse = (problem: string, cause?: unknown) =>
      new LockKeyError(`A key ${quoted(literals.join('…'))} cannot be built: value ${index} ${problem}`, 500, {
        cause,
      });
    return keyPart(() => value, refuse) + literals[index + 1]!;
  });
  const key = literals[0]! + parts.join('');
  checkKey(key);
  return key;
}

/** The source of the values in a key. It decides when the lock can be acquired. */
export type KeyOrigin = 'static' | 'arguments' | 'request';

/** The parts of a request that the key of a handler can use. */
const REQUEST_ROOTS = ['params', 'body', 'query', 'headers', 'user', 'data', 'args'] as const;
export type RequestRoot = (typeof REQUEST_ROOTS)[number];

type TemplateOf<Root extends string | bigint> = `${string}{${Root}${'.' | '}'}${string}`;
/** A template that uses the request, for the compiler. */
export type RequestTemplate = TemplateOf<RequestRoot>;
/** A template that uses arguments of the method, for the compiler. */
export type ArgumentTemplate = TemplateOf<bigint>;

/** Objects that a template cannot use as a whole. */
const NEED_A_PATH = new Set(['params', 'query', 'headers', 'args']);

/** Finds the value at the root of a path: an argument by its index, or a part of the request by its name. */
export type Lookup = (root: string) => unknown;

interface Reference {
  source: string;
  root: string;
  path: string[];
}

/** Names that a path may not have: they lead out of the value. */
const FORBIDDEN = new Set(['__proto__', 'prototype', 'constructor']);

/** A key like `order:{0.customer.id}`. Values are escaped, so ('x:y', 'z') and ('x', 'y:z') make different keys of `{0}:{1}`. */
export class KeyTemplate {
  readonly origin: KeyOrigin;
  /** The texts in its braces: `0.customer.id`. */
  readonly sources: readonly string[];
  readonly #parts: (string | Reference)[];

  /** @throws LockOptionsError for a template that cannot be read */
  constructor(readonly template: string) {
    this.#parts = parse(template);
    const references = this.#parts.filter((part) => typeof part !== 'string');
    this.sources = references.map(({ source }) => source);
    const fromRequest = references.filter(({ root }) => (REQUEST_ROOTS as readonly string[]).includes(root));
    if (fromRequest.length > 0 && fromRequest.length < references.length) {
      throw unreadable(template, 'it mixes arguments of the method and parts of the request');
    }
    this.origin = references.length === 0 ? 'static' : fromRequest.length > 0 ? 'request' : 'arguments';
    if (this.origin === 'static') checkKey(template);
  }

  /** @throws LockKeyError when a value is missing or has no string form, or the key is too long */
  render(lookup: Lookup): string {
    const key = this.#parts.map((part) => (typeof part === 'string' ? part : this.#resolve(part, lookup))).join('');
    checkKey(key, this.#status);
    return key;
  }

  #resolve({ source, root, path }: Reference, lookup: Lookup): string {
    const isFromRequest = this.origin === 'request';
    const read = () => {
      let value = lookup(root);
      for (const name of path) value = value === null || value === undefined ? undefined : (value as never)[name];
      if (isFromRequest && value === undefined) throw new InvalidKeyPart('is not in the request.');
      return value;
    };
    return keyPart(read, (problem, cause) => {
      const message = `The key ${quoted(this.template)} cannot be built: {${source}} ${problem}`;
      return new LockKeyError(message, this.#status, { cause, field: isFromRequest ? source : undefined });
    });
  }

  get #status(): 400 | 500 {
    return this.origin === 'request' ? 400 : 500;
  }
}

function parse(template: string): (string | Reference)[] {
  if (typeof template !== 'string')
    throw unreadable(String(template), `it is of type ${typeof template}, not a string`);
  if (template === '') throw unreadable(template, 'it is empty');
  if (template.includes('${')) throw unreadable(template, '"${" is template-literal syntax: write "{" here');
  const parts: (string | Reference)[] = [];
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    if (index % 2 === 1) parts.push(reference(template, piece));
    else if (/[{}]/.test(piece)) throw unreadable(template, 'a brace is unmatched');
    else if (piece !== '') parts.push(piece);
  }
  return parts;
}

function reference(template: string, source: string): Reference {
  const [root = '', ...path] = source.split('.');
  if (!/^\d+$/.test(root) && !(REQUEST_ROOTS as readonly string[]).includes(root)) {
    throw unreadable(
      template,
      `{${source}} begins with neither the index of an argument nor ${REQUEST_ROOTS.join(', ')}`,
    );
  }
  if (path.some((name) => name === '' || FORBIDDEN.has(name))) throw unreadable(template, `{${source}} is not a path`);
  if (path.length === 0 && NEED_A_PATH.has(root))
    throw unreadable(template, `{${source}} needs a path: {${source}.id}`);
  return { source, root, path: root === 'headers' ? path.map((name) => name.toLowerCase()) : path };
}

function unreadable(template: string, problem: string): LockOptionsError {
  return new LockOptionsError(
    `the key ${quoted(template)} cannot be read: ${problem}. ` +
      'Expected something like "order:{0}", "order:{0.customer.id}" or, for a handler, "order:{params.id}".',
  );
}

/** A value cannot be a part of a key. The message is the rest of a sentence about the value. */
class InvalidKeyPart extends Error {}

const PASS_A_VALUE = 'Pass a value, or check it beforehand.';

/**
 * The form of a value in a key, escaped so that values never run into each other.
 * @param read returns the value. It may throw, for example an InvalidKeyPart
 * @param refuse makes the error for a value that is empty, has no string form of its own, or cannot be read
 */
export function keyPart(read: () => unknown, refuse: (problem: string, cause?: unknown) => LockKeyError): string {
  try {
    return stringForm(read()).replace(/[%:{}]/g, (char) => '%' + char.charCodeAt(0).toString(16).toUpperCase());
  } catch (error) {
    throw error instanceof InvalidKeyPart ? refuse(error.message) : refuse('cannot be read. See the cause.', error);
  }
}

function stringForm(value: unknown): string {
  switch (typeof value) {
    case 'string':
      if (value === '') throw new InvalidKeyPart(`is empty. ${PASS_A_VALUE}`);
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw new InvalidKeyPart(`is ${value}. ${PASS_A_VALUE}`);
      return String(value);
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      if (value !== null) return objectForm(value);
  }
  const kind = value === null || value === undefined ? String(value) : `a ${typeof value}`;
  throw new InvalidKeyPart(`is ${kind}. ${PASS_A_VALUE}`);
}

/** Dates, bytes and ids have a string form of their own. Plain objects and lists would all look the same. */
function objectForm(value: object): string {
  if (types.isDate(value)) return value.toISOString(); // even a Date of another realm, as in Jest
  if (Array.isArray(value)) throw new InvalidKeyPart('is a list. Name one of its items.');
  if (ArrayBuffer.isView(value)) {
    // As text, all bytes outside of UTF-8 would look the same.
    return stringForm(Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex'));
  }
  const { toString } = value; // oxlint-disable-line typescript/unbound-method -- called with its object below
  const form: unknown = typeof toString === 'function' ? toString.call(value) : undefined;
  if (typeof form !== 'string' || form === '' || form.startsWith('[object ')) {
    throw new InvalidKeyPart('is an object without a string form. Name a part of it that is a string or a number.');
  }
  if (form.includes('\uFFFD')) {
    throw new InvalidKeyPart('is an object whose string form has lost bytes. Pass a Buffer, or its hexadecimal form.');
  }
  return form;
}
