import type { ExecutionContext } from '@nestjs/common';
import { checkKey, checkKeys } from '../../core/keys/key.js';
import { LockContendedError, LockKeyError, LockOptionsError, LockRefusal } from '../../api/errors.js';
import type { WithLockOptions } from '../../api/options.js';
import { quoted } from '../../api/printable.js';
import { checkRequest } from '../../core/options/call-options.js';
import { unfit } from '../../core/options/checks.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { KeyTemplate, type KeyOrigin } from '../../core/keys/key-template.js';
import { noteOn } from '../injection/decorated-methods.js';
import { keyErrorOf, MissedParts } from './missed-parts.js';
import { requestValues } from './request-values.js';

/** A key, or those of several locks that are acquired together. */
export type OneOrMoreKeys = string | readonly string[];

/** A key that is made from the whole context of a request: see `fromContext`. */
export class ContextKey {
  constructor(readonly make: (context: ExecutionContext) => OneOrMoreKeys) {}
}

export type OnContended = 'throw' | 'skip' | ((...args: never[]) => unknown);
export type AnyLockedOptions = Omit<WithLockOptions, 'signal'> & { onContended?: OnContended; registration?: string };
export type AnyKey = OneOrMoreKeys | ContextKey | ((...args: never[]) => OneOrMoreKeys);

/** The keys and the options of one `@Locked`: read and checked when the class is defined. */
export class LockedPlan {
  readonly origin: KeyOrigin;
  readonly registration: string;
  /** The text of the key; undefined where there are several, or a function makes it. */
  readonly template?: string;
  /** The templates of the keys; none where a function makes them. */
  readonly templates: readonly KeyTemplate[];
  /** The label of its locks, where the options have none. */
  readonly label: string;
  readonly onContended: OnContended;
  /** Undefined: the options of the service. */
  readonly options?: Omit<WithLockOptions, 'signal'>;
  readonly #make: KeySource['make'];
  readonly #missed = new MissedParts('Locked');

  /** @throws LockOptionsError */
  constructor(
    key: AnyKey,
    given: AnyLockedOptions,
    /** `Class.method`, for messages. */
    readonly name: string,
    readonly returnsObservable: boolean,
  ) {
    if (typeof given !== 'object' || given === null) {
      throw new LockOptionsError(`the options must be an object: got ${given === null ? 'null' : typeof given}.`);
    }
    const { onContended = 'throw', registration = DEFAULT_REGISTRATION, ...options } = given;
    if ('signal' in options) throw new LockOptionsError('it takes no signal: use LockService.withLock.');
    checkRequest(options, ['onContended', 'registration']);
    if (onContended !== 'throw' && onContended !== 'skip' && typeof onContended !== 'function') {
      throw new LockOptionsError(`onContended must be "throw", "skip" or a function: got ${String(onContended)}.`);
    }
    if (typeof registration !== 'string' || registration === '') {
      throw new LockOptionsError(
        `registration must be the name of a registration: got ${JSON.stringify(registration)}.`,
      );
    }
    this.onContended = onContended;
    this.registration = registration;
    this.options = Object.keys(options).length > 0 ? options : undefined;
    const { origin, templates, template, make } = sourceOf(key);
    this.origin = origin;
    this.templates = templates;
    this.template = template;
    this.label = template ?? name;
    this.#make = make;
  }

  /**
   * Whether `LockedInterceptor`, where there is one, acquires the lock. A key made of arguments is not known before the pipes
   * have run, nor are the arguments for an `onContended` function.
   */
  get isForInterceptor(): boolean {
    return this.origin === 'request' || (this.origin === 'static' && typeof this.onContended !== 'function');
  }

  /** @throws LockKeyError */
  keyOfArguments(args: unknown[]): OneOrMoreKeys {
    return this.#key(args);
  }

  /** @throws LockKeyError */
  keyOfRequest(context: ExecutionContext): OneOrMoreKeys {
    try {
      return this.#key(context);
    } catch (error) {
      if (error instanceof LockKeyError) this.#missed.warnOnce(error);
      throw error;
    }
  }

  /** The value instead of the method's, as `onContended` says. @throws the reason of any other refusal */
  whenRefused(error: unknown, args: unknown[]): unknown {
    if (this.onContended === 'throw' || !(error instanceof LockContendedError)) {
      throw error instanceof LockRefusal ? error.of(this.name) : error;
    }
    return this.onContended === 'skip' ? undefined : (this.onContended as (...args: unknown[]) => unknown)(...args);
  }

  #key(input: unknown): OneOrMoreKeys {
    try {
      return this.#make(input);
    } catch (error) {
      if (!(error instanceof LockKeyError)) throw error;
      throw keyErrorOf(`@Locked on ${this.name}`, error);
    }
  }
}

/** What the key of a call, or its keys, are made of. */
interface KeySource {
  readonly origin: KeyOrigin;
  readonly templates: readonly KeyTemplate[];
  /** The text of the only key. */
  readonly template?: string;
  /**
   * @param input the arguments of the call, or the context of the request
   * @throws LockKeyError
   */
  readonly make: (input: unknown) => OneOrMoreKeys;
}

/** @throws LockOptionsError */
function sourceOf(key: AnyKey): KeySource {
  if (key instanceof ContextKey) return { origin: 'request', templates: [], make: checked(key.make, 400) };
  if (typeof key === 'function') {
    const make = key as (...args: unknown[]) => unknown;
    return { origin: 'arguments', templates: [], make: checked((args: unknown[]) => make(...args), 500) };
  }
  const templates = Array.from(Array.isArray(key) ? key : [key], templateOf);
  const origin = originOf(templates);
  const render = (input: unknown): string[] => {
    const lookup =
      origin === 'request'
        ? requestValues(input as ExecutionContext)
        : (index: string) => (input as unknown[])[Number(index)];
    return templates.map((template) => template.render(lookup));
  };
  if (Array.isArray(key)) return { origin, templates, make: render };
  return { origin, templates, template: templates[0]!.template, make: (input) => render(input)[0]! };
}

function templateOf(text: unknown): KeyTemplate {
  if (typeof text === 'string') return new KeyTemplate(text);
  throw unfit('the key', text, 'a string, an array of strings, or a function that returns one of them');
}

/** @throws LockOptionsError for templates that are rendered at different times, and where there is none */
function originOf(templates: KeyTemplate[]): KeyOrigin {
  if (templates.length === 0) throw new LockOptionsError('the array of keys is empty: name at least one.');
  const ofRequest = templates.find(({ origin }) => origin === 'request');
  const ofArguments = templates.find(({ origin }) => origin === 'arguments');
  if (ofRequest && ofArguments) {
    throw new LockOptionsError(
      `${quoted(ofArguments.template)} is made of arguments and ${quoted(ofRequest.template)} of the request, which are not known ` +
        'at the same time: make all keys of one of them.',
    );
  }
  return (ofRequest ?? ofArguments)?.origin ?? 'static';
}

function checked(make: (input: never) => unknown, status: 400 | 500): KeySource['make'] {
  return (input) => {
    let key: unknown;
    try {
      key = make(input as never);
    } catch (cause) {
      throw new LockKeyError('The key function failed.', status, { cause });
    }
    if (isThenable(key)) {
      // The promise is ignored, and its rejection must not end the process.
      if (key instanceof Promise) key.catch(() => {});
      throw new LockKeyError('The key function returned a Promise: return a string, or an array of strings.', status);
    }
    if (Array.isArray(key)) return checkKeys(key, status);
    if (typeof key !== 'string') {
      const got = key === null ? 'null' : key === undefined ? 'nothing' : `a value of type ${typeof key}`;
      throw new LockKeyError(`The key function returned ${got}: return a string, or an array of strings.`, status);
    }
    checkKey(key, status);
    return key;
  };
}

const PLAN = Symbol.for('nest-redis-lock:plan');

export function setPlan(method: object, plan: LockedPlan): void {
  Reflect.defineMetadata(PLAN, plan, method);
  const requestKeys = plan.origin === 'request' ? plan.templates : undefined;
  noteOn(method, plan.name, { decorator: '@Locked', override: 'runs without', requestKeys });
}

export function planOf(method: object): LockedPlan | undefined {
  return Reflect.getOwnMetadata(PLAN, method) as LockedPlan | undefined;
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function';
}
