import { LockKeyError, LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { checkKey, keyPart, PASS_A_VALUE, UnfitPart } from './key.js';

/** The source of a key's values, which decides when the lock can be acquired. */
export type KeyOrigin = 'static' | 'arguments' | 'request';

/** The parts of a request that a handler's key can be made of. */
export const REQUEST_ROOTS = ['params', 'body', 'query', 'headers', 'user', 'data', 'args'] as const;
export type RequestRoot = (typeof REQUEST_ROOTS)[number];

type TemplateOf<Root extends string | bigint> = `${string}{${Root}${'.' | '}'}${string}`;
/** The text of a key that is made of the request, as the compiler sees it. */
export type RequestTemplate = TemplateOf<RequestRoot>;
/** The text of a key that is made of arguments, and of nothing else. */
export type ArgumentTemplate = TemplateOf<bigint>;

/** Objects that are never a value by themselves. */
const NEED_A_PATH = new Set(['params', 'query', 'headers', 'args']);

/** Finds the value that a path begins with: an argument by its index, or a part of the request by its name. */
export type Lookup = (root: string) => unknown;

interface Reference {
  source: string;
  root: string;
  path: string[];
}

/** Getters of a class may be read, the inner workings of objects may not. */
const FORBIDDEN = new Set(['__proto__', 'prototype', 'constructor']);

/**
 * A key like `order:{0.customer.id}`. Values are escaped, so that ('x:y', 'z') and ('x', 'y:z') make two keys of
 * `{0}:{1}`.
 */
export class KeyTemplate {
  readonly origin: KeyOrigin;
  /** What stands in its braces: `0.customer.id`. */
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
    const status = this.origin === 'request' ? 400 : 500;
    const key = this.#parts
      .map((part) => (typeof part === 'string' ? part : this.#resolve(part, lookup, status)))
      .join('');
    checkKey(key, status);
    return key;
  }

  #resolve({ source, root, path }: Reference, lookup: Lookup, status: 400 | 500): string {
    const isOfRequest = this.origin === 'request';
    const refuse = (problem: string, options?: ErrorOptions) =>
      new LockKeyError(`The key ${quoted(this.template)} cannot be made: ${problem}`, status, {
        ...options,
        field: isOfRequest ? source : undefined,
      });
    let value: unknown;
    try {
      value = lookup(root);
      for (const name of path) value = value === null || value === undefined ? undefined : (value as never)[name];
      return keyPart(value);
    } catch (error) {
      if (!(error instanceof UnfitPart)) throw refuse(`{${source}} cannot be read. See the cause.`, { cause: error });
      if (isOfRequest && value === undefined) throw refuse(`the request has no ${source}.`);
      const advice = error.advice ?? (isOfRequest ? undefined : PASS_A_VALUE);
      throw refuse(`{${source}} ${error.message}.${advice === undefined ? '' : ` ${advice}`}`);
    }
  }
}

function parse(template: string): (string | Reference)[] {
  if (typeof template !== 'string')
    throw unreadable(String(template), `it is of type ${typeof template}, not a string`);
  if (template === '') throw unreadable(template, 'it is empty');
  if (template.includes('${')) throw unreadable(template, '"${" belongs to template literals, here write "{" alone');
  const parts: (string | Reference)[] = [];
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    if (index % 2 === 1) parts.push(reference(template, piece));
    else if (/[{}]/.test(piece)) throw unreadable(template, 'a brace has no counterpart');
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
