import { Logger, type ExecutionContext } from '@nestjs/common';
import { from, isObservable, mergeMap, of, type Observable } from 'rxjs';
import {
  LockContendedError,
  LockKeyError,
  LockOptionsError,
  LockRefusal,
  LockUnavailableError,
} from '../../api/errors.js';
import type { WithLockOptions } from '../../api/options.js';
import { quoted } from '../../api/printable.js';
import { checkKey, checkKeys, KeyTemplate, type KeyOrigin } from '../../core/keys/key.js';
import { checkHold, type AskedHold } from '../../core/options/call-options.js';
import { checkOptions, type MethodKind } from '../../core/options/option-rows.js';
import { invalidOption } from '../../core/options/checks.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import type { LockService } from '../../core/service/lock.service.js';
import { noteOn } from '../injection/decorated-methods.js';
import { isThenable, workWith, type ServedCall } from '../injection/injected-service.js';
import { InterceptedCall } from './intercepted-call.js';
import { lockedStream } from './locked-stream.js';
import { requestValues, MissingKeyWarnings } from './request-keys.js';

/** A key, or the keys of several locks that are acquired together. */
type OneOrMoreKeys = string | readonly string[];

/** A function that makes one or more keys from the context of a request: see `fromContext`. */
export class ContextKey<Made extends OneOrMoreKeys = OneOrMoreKeys> {
  constructor(readonly make: (context: ExecutionContext) => Made) {}
}

/** What happens to a refused call. */
type OnRefused = 'throw' | 'skip' | ((...args: never[]) => unknown);
export type AnyLockedOptions = Omit<WithLockOptions, 'signal'> & {
  onContended?: OnRefused;
  onUnavailable?: OnRefused;
  registration?: string;
};
export type AnyKey = OneOrMoreKeys | ContextKey | ((...args: never[]) => OneOrMoreKeys);

/** The differences between `@Locked` and `@Limited`. */
export interface LockedKind {
  /** For messages and for the check of its options. */
  readonly decorator: MethodKind;
  /** For messages: an example. */
  readonly example: string;
  /** For messages: what its methods run under. */
  readonly under: 'lock' | 'permits';
  /** For messages: the call that does the same for a part of a method. */
  readonly call: string;
  /**
   * Splits off the options about the number of permits.
   * @throws LockOptionsError
   */
  readonly split: (given: object | undefined) => { readonly hold?: AskedHold; readonly rest: AnyLockedOptions };
}

/**
 * One method with `@Locked` or `@Limited`: its options, read when the class is defined, and how its calls run. `LockService` gets it
 * with each call.
 */
export class LockedMethod {
  /** For messages: `@Locked`. */
  readonly decorator: string;
  readonly registration: string;
  readonly source: KeySource;
  /** The template of its key, if it has only one. */
  readonly template?: string;
  /** The label of its locks, unless the options have one. */
  readonly label: string;
  readonly onContended: OnRefused;
  readonly onUnavailable: OnRefused;
  /** The permits; undefined for a lock. */
  readonly hold?: AskedHold;
  /** The options of this lock; undefined if it uses only the options of the service. */
  readonly options?: Omit<WithLockOptions, 'signal'>;
  readonly #missingKeys: MissingKeyWarnings;

  /** @throws LockOptionsError */
  constructor(
    readonly kind: LockedKind,
    key: AnyKey,
    given: object | undefined,
    /** `Class.method`, for messages. */
    readonly name: string,
    readonly returnsObservable: boolean,
  ) {
    const { hold, rest } = kind.split(given);
    const { onContended = 'throw', onUnavailable = 'throw', registration = DEFAULT_REGISTRATION, ...options } = rest;
    if ('signal' in options) throw new LockOptionsError(`it takes no signal: use ${kind.call}.`);
    checkOptions(kind.decorator, rest);
    checkHold(options);
    this.registration = registration;
    this.source = sourceOf(key, kind);
    this.template = this.source.template;
    this.label = this.template ?? name;
    this.onContended = onContended;
    this.onUnavailable = onUnavailable;
    this.decorator = kind.decorator;
    this.hold = hold;
    this.#missingKeys = new MissingKeyWarnings(contextOf(kind));
    this.options = Object.keys(options).length > 0 ? options : undefined;
  }

  /**
   * Whether `LockedInterceptor` acquires the lock if the handler has that interceptor. The interceptor runs before the pipes, so it has no
   * arguments yet: neither for a key, nor for a function that is called instead of the method.
   */
  get isForInterceptor(): boolean {
    const { origin } = this.source;
    if (origin !== 'static') return origin === 'request';
    return typeof this.onContended !== 'function' && typeof this.onUnavailable !== 'function';
  }

  get keyStatus(): 400 | 500 {
    return this.source.origin === 'request' ? 400 : 500;
  }

  /** Runs a call under the lock, unless `LockedInterceptor` has acquired it. */
  serve(call: ServedCall): unknown {
    const intercepted = this.isForInterceptor ? InterceptedCall.current() : undefined;
    if (intercepted?.handler === this) return intercepted.enter(call.run);
    if (!this.returnsObservable) return this.#loggingStreams(this.#promise(call));
    const open = () => streamOf(call.run());
    return this.#stream(() => this.#askedBy(call), call.args, open);
  }

  /** Runs a request under the lock, until every interceptor and the handler are done. */
  intercept(context: ExecutionContext, locks: LockService, open: () => Observable<unknown>): Observable<unknown> {
    const call = new InterceptedCall(this, context);
    return this.#stream(
      () => [this.#keyOf(context), locks],
      [context],
      () => call.run(open),
      call,
    );
  }

  #promise(call: ServedCall): Promise<unknown> {
    const work = async () => {
      const result = call.run();
      if (isObservable(result)) throw undeclaredStream(this, 'an Observable');
      const value = await result;
      if (isObservable(value)) throw undeclaredStream(this, 'a Promise of an Observable');
      return value;
    };
    const whenRefused = (error: unknown) => this.#whenRefused(error, call.args);
    return workWith(
      () => this.#askedBy(call),
      ([key, locks]) => locks.withLockOr(key, this.options, work, whenRefused, this, this.hold),
    );
  }

  #stream(
    ask: () => KeysAndService,
    args: unknown[],
    open: () => Observable<unknown>,
    intercepted?: InterceptedCall,
  ): Observable<unknown> {
    return lockedStream<unknown>(
      (signal, work, instead) => {
        const whenRefused = async (error: unknown) => {
          const value = await this.#whenRefused(error, args);
          // A skipped stream ends without a value, but a request always gets an answer.
          if (intercepted || this.#onRefusal(error) !== 'skip') instead(value);
        };
        const options = { ...this.options, signal };
        return workWith(ask, ([key, locks]) => locks.withLockOr(key, options, work, whenRefused, this, this.hold));
      },
      open,
      intercepted,
    );
  }

  /** Returns the key of a call without the interceptor. @throws LockOptionsError for a key that needs it */
  #askedBy({ args, service }: ServedCall): KeysAndService {
    if (this.source.origin !== 'request') return [this.#keyOf(args), service()];
    throw new LockOptionsError(
      `${this.name} was called without LockedInterceptor, which takes a lock whose key is made from the request: the method did ` +
        'not run. Let Nest call the handler (a GraphQL field resolver needs fieldResolverEnhancers: ["interceptors"]), or use ' +
        'a key made from arguments.',
    );
  }

  /** @throws LockKeyError */
  #keyOf(input: unknown[] | ExecutionContext): OneOrMoreKeys {
    try {
      return this.source.make(input);
    } catch (error) {
      throw this.#missingKeys.explain(`${this.decorator} on ${this.name}`, error);
    }
  }

  /**
   * Logs that a method returned an undeclared Observable. Its caller calls `subscribe` on the promise and fails there, so it never
   * handles the rejection, which must not end the process.
   */
  #loggingStreams(call: Promise<unknown>): Promise<unknown> {
    const logged: Promise<unknown> = call.catch((error: unknown) => {
      if (error instanceof UndeclaredStreamError) {
        logged.catch(() => {});
        new Logger(contextOf(this.kind)).error(error.message);
      }
      throw error;
    });
    return logged;
  }

  /** Returns the value of a refused call, as the options say. @throws the error, if the options say so or the refusal has another reason */
  #whenRefused(error: unknown, args: unknown[]): unknown {
    const reason = error instanceof LockRefusal ? error.of(this.name) : error;
    const way = this.#onRefusal(error) as 'throw' | 'skip' | ((...args: unknown[]) => unknown);
    if (way === 'throw') throw reason;
    if (way === 'skip') return undefined;
    return error instanceof LockContendedError ? way(...args) : way(reason, ...args);
  }

  #onRefusal(error: unknown): OnRefused {
    if (error instanceof LockContendedError) return this.onContended;
    return error instanceof LockUnavailableError && !isShutdownError(error) ? this.onUnavailable : 'throw';
  }
}

/** Whether the application is closing: only then does the error have no cause (`LockUnavailableError.from`). */
function isShutdownError({ causes }: LockUnavailableError): boolean {
  return causes.length === 0;
}

/** Returns the context of log entries. */
function contextOf({ decorator }: LockedKind): string {
  return decorator.slice(1);
}

type KeysAndService = readonly [key: OneOrMoreKeys, locks: LockService];

/** The source of the keys of a call. */
interface KeySource {
  readonly origin: KeyOrigin;
  readonly templates: readonly KeyTemplate[];
  /** The template of the only key. */
  readonly template?: string;
  /**
   * @param input the arguments of the call, or the context of the request
   * @throws LockKeyError
   */
  readonly make: (input: unknown) => OneOrMoreKeys;
}

/** @throws LockOptionsError */
function sourceOf(key: AnyKey, { under }: LockedKind): KeySource {
  const takesSeveral = under === 'lock';
  if (key instanceof ContextKey)
    return { origin: 'request', templates: [], make: checked(key.make, 400, takesSeveral) };
  if (typeof key === 'function') {
    const make = key as (...args: unknown[]) => unknown;
    const ofArguments = (args: unknown[]) => make(...args);
    return { origin: 'arguments', templates: [], make: checked(ofArguments, 500, takesSeveral) };
  }
  const texts = takesSeveral && Array.isArray(key) ? key : [key];
  const templates = Array.from(texts, (text) => templateOf(text, takesSeveral));
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

function templateOf(text: unknown, takesSeveral: boolean): KeyTemplate {
  if (typeof text === 'string') return new KeyTemplate(text);
  const expected = takesSeveral
    ? 'a string, an array of strings, or a function that returns one of them'
    : 'one string, or a function that returns one: permits always belong to one key';
  throw invalidOption('the key', text, expected);
}

/** @throws LockOptionsError for an empty array, and for templates that cannot be rendered at the same time */
function originOf(templates: KeyTemplate[]): KeyOrigin {
  if (templates.length === 0) throw new LockOptionsError('the array of keys is empty: name at least one.');
  const ofRequest = templates.find(({ origin }) => origin === 'request');
  const ofArguments = templates.find(({ origin }) => origin === 'arguments');
  if (ofRequest && ofArguments) {
    throw new LockOptionsError(
      `${quoted(ofArguments.template)} uses arguments and ${quoted(ofRequest.template)} the request, which are not known ` +
        'at the same time: use one of them for all keys.',
    );
  }
  return (ofRequest ?? ofArguments)?.origin ?? 'static';
}

function checked(make: (input: never) => unknown, status: 400 | 500, takesSeveral: boolean): KeySource['make'] {
  const refusal = (got: string) =>
    new LockKeyError(
      `The key function returned ${got}: return a string${takesSeveral ? ', or an array of strings' : ''}.`,
      status,
    );
  return (input) => {
    let key: unknown;
    try {
      key = make(input as never);
    } catch (cause) {
      throw new LockKeyError('The key function failed.', status, { cause });
    }
    if (isThenable(key)) {
      // Nobody awaits this promise, so its rejection must not end the process.
      if (key instanceof Promise) key.catch(() => {});
      throw refusal('a Promise');
    }
    if (Array.isArray(key) && takesSeveral) return checkKeys(key, status);
    if (typeof key !== 'string') {
      if (Array.isArray(key)) throw refusal('an array, but permits always belong to one key');
      const got = key === null ? 'null' : key === undefined ? 'nothing' : `a value of type ${typeof key}`;
      throw refusal(got);
    }
    checkKey(key, status);
    return key;
  };
}

const LOCKED = Symbol.for('nest-redis-lock:locked');

export function setLockedMethod(method: object, locked: LockedMethod): void {
  Reflect.defineMetadata(LOCKED, locked, method);
  const requestKeys = locked.source.origin === 'request' ? locked.source.templates : undefined;
  noteOn(method, { decorator: locked.decorator, override: 'runs without', locksCalls: true, requestKeys });
}

export function lockedMethodOf(method: object): LockedMethod | undefined {
  return Reflect.getOwnMetadata(LOCKED, method) as LockedMethod | undefined;
}

/** Makes a stream of the result of a method that is declared to return a stream. */
function streamOf(result: unknown): Observable<unknown> {
  if (isObservable(result)) return result;
  return from(Promise.resolve(result)).pipe(mergeMap((value) => (isObservable(value) ? value : of(value))));
}

class UndeclaredStreamError extends LockOptionsError {}

function undeclaredStream({ name, kind }: LockedMethod, got: string): LockOptionsError {
  return new UndeclaredStreamError(
    `${name} returned ${got}, but is not declared to return an Observable, so ${kind.decorator} did not subscribe to it. ` +
      'Write its return type, ": Observable<…>", import Observable as a value, not with "import type", and compile with emitDecoratorMetadata: ' +
      `then the ${kind.under} can be held from the subscription on.`,
  );
}
