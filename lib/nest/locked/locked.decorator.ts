import type { ExecutionContext } from '@nestjs/common';
import { Observable } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';
import { isOptions, invalidOption } from '../../core/options/checks.js';
import { serveMethod } from '../injection/injected-service.js';
import { methodDecorator } from '../injection/method-decorator.js';
import {
  ContextKey,
  LockedMethod,
  lockedMethodOf,
  setLockedMethod,
  type AnyKey,
  type AnyLockedOptions,
  type LockedKind,
} from './locked-method.js';
import { lockedInterceptorOf } from './locked.interceptor.js';
import type {
  AnswerArgs,
  LockedDecorator,
  LockedKey,
  LockedOptions,
  OnContended,
  OnUnavailable,
  OutageArgs,
} from './locked.types.js';

/**
 * Makes one or more keys from the whole `ExecutionContext`, for handlers: `@Locked(fromContext((context) => …))`.
 * `LockedInterceptor` takes the lock.
 */
export function fromContext<Made extends string | readonly string[]>(
  make: (context: ExecutionContext) => Made,
): ContextKey<Made> {
  return new ContextKey(make);
}

/**
 * Runs the method under a lock: one call at a time for each key, across all instances of the application. With an array of keys, it
 * runs under all of these locks, which are acquired together: see `LockService.acquireAll`.
 *
 * **To protect money, make the key from the arguments.** A key from the request (`{params.x}` and the like) is made before the
 * pipes run, from the text that the client sent. To a `ParseIntPipe`, `17` and `017` are the same account; as keys they are two
 * locks. Arguments are the results of the pipes: use `{0}`, or a function that turns all spellings into one form.
 *
 * @param key a string in which `{0}` is replaced by the first argument and `{0.customer.id}` by a path in it; for handlers also
 *   `{params.x}`, `{body.x}`, `{query.x}`, `{headers.x}`, `{user.x}`, `{data.x}`, `{args.x}`; an array of such strings; a
 *   function of the method's arguments, or `fromContext(…)`, that returns a string or an array
 * @throws LockOptionsError when the class is defined: for an invalid key or option, a second `@Locked`, a class compiled without
 *   `experimentalDecorators`, or `@Locked` without its parentheses
 *
 * A call rejects with `LockContendedError`, `LockUnavailableError`, `LockLostError`, `LockSelfDeadlockError` or `LockKeyError`.
 * Except for `LockLostError`, the method did not run.
 */
export function Locked<
  KeyArgs extends unknown[] = [],
  const Key extends LockedKey = never,
  Args extends unknown[] = [],
  Value = never,
  Way extends 'throw' | 'skip' = 'throw' | 'skip',
  DownArgs extends unknown[] = [],
  DownValue = never,
  DownWay extends 'throw' | 'skip' = 'throw' | 'skip',
>(
  key: Key | ((...args: KeyArgs) => string | readonly string[]),
  options?: LockedOptions<
    OnContended<AnswerArgs<Key, Args>, Value, Way>,
    OnUnavailable<OutageArgs<Key, DownArgs>, DownValue, DownWay>
  >,
): LockedDecorator<Key, KeyArgs, [Args, Value, Way], [DownArgs, DownValue, DownWay]>;
export function Locked(...given: [key: AnyKey, options?: AnyLockedOptions]): MethodDecorator {
  return lockedDecorator(LOCKED, given);
}

const LOCKED: LockedKind = {
  decorator: '@Locked',
  example: "@Locked('key')",
  under: 'lock',
  call: 'LockService.withLock',
  split: (given: AnyLockedOptions = {}) => {
    if (!isOptions(given)) throw invalidOption('the options', given, 'an object');
    return { rest: given };
  },
};

/** Makes `@Locked` or `@Limited`. @param given all arguments of the call that makes it */
export function lockedDecorator(kind: LockedKind, given: [key: AnyKey, options?: object]): MethodDecorator {
  return methodDecorator(kind.decorator, kind.example, given, (decorated) => {
    const [key, options] = given;
    const { target, property, method, name } = decorated;
    const other = lockedMethodOf(method)?.kind;
    if (other === kind) {
      throw new LockOptionsError(
        `the method has another one: keep one, and in the method call ${kind.call} instead of the other.`,
      );
    }
    if (other) {
      throw new LockOptionsError(
        `the method is also ${other.decorator}: keep one, and in the method call ${kind.call} or ${other.call} instead of the other.`,
      );
    }
    const returnType: unknown = Reflect.getMetadata('design:returntype', target, property);
    if (SYNCHRONOUS.has(returnType)) {
      const hint = returnType === Function ? ` ${IMPORT_AS_VALUE}` : '';
      throw new LockOptionsError(`the method must return a Promise or an Observable. Make it async.${hint}`);
    }
    const returnsObservable = isObservableType(returnType);
    const locked = new LockedMethod(kind, key, options, name, returnsObservable);
    const wrapper = serveMethod(decorated, locked);
    setLockedMethod(wrapper, locked);
    const interceptors = (Reflect.getOwnMetadata(INTERCEPTORS, wrapper) as unknown[] | undefined) ?? [];
    // First, in any order of the decorators, so that interceptors inside, such as a transaction, end before the release.
    Reflect.defineMetadata(INTERCEPTORS, [lockedInterceptorOf(locked.registration), ...interceptors], wrapper);
  });
}

const INTERCEPTORS = '__interceptors__'; // INTERCEPTORS_METADATA of Nest
/** The hint for a return type that is imported only as a type: its metadata is just Function. */
const IMPORT_AS_VALUE =
  'If it returns an Observable, import that as a value, not with "import type" or "import { type Observable }".';
const SYNCHRONOUS = new Set<unknown>([String, Number, Boolean, Array, Function]);

function isObservableType(type: unknown): boolean {
  return typeof type === 'function' && (type === Observable || typeof type.prototype?.subscribe === 'function');
}
