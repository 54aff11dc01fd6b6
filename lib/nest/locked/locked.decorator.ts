import { Logger, type ExecutionContext } from '@nestjs/common';
import { isObservable, Observable, throwError } from 'rxjs';
import { LockError, LockOptionsError } from '../../api/errors.js';
import { loopTurn } from '../../core/time/event-loop.js';
import type { LockService } from '../../core/service/lock.service.js';
import { injectInto } from '../injection/injected-service.js';
import { InterceptedCall, notAsync } from './intercepted-call.js';
import {
  isThenable,
  ContextKey,
  LockedPlan,
  planOf,
  setPlan,
  type AnyKey,
  type AnyLockedOptions,
  type OneOrMoreKeys,
} from './locked-plan.js';
import { lockedInterceptorOf } from './locked.interceptor.js';
import { lockedStream } from './locked-stream.js';
import type { AnswerArgs, LockedDecorator, LockedKey, LockedOptions } from './locked.types.js';
import { copyMetadata } from '../injection/copy-metadata.js';
import { refuseBareUse } from '../injection/refuse-bare-use.js';
import { refuseStandard } from '../injection/refuse-standard.js';

/**
 * Makes a key, or several, from the whole `ExecutionContext`, for handlers: `@Locked(fromContext((context) => …))`.
 * `LockedInterceptor` takes the lock.
 */
export function fromContext(make: (context: ExecutionContext) => string | readonly string[]): ContextKey {
  return new ContextKey(make);
}

/**
 * Runs the method under a lock: one call at a time for each key, across all instances of the application. With an array of
 * keys, it runs under the locks of all of them, which are acquired together: see `LockService.acquireAll`.
 *
 * **Make a key that protects money from the arguments.** A key of the request (`{params.x}` and the like) is made before the
 * pipes run, from the text that the client has sent: `17` and `017` are one account to a `ParseIntPipe`, and two locks. Arguments
 * are what the pipes return: use `{0}`, or a function of them that brings all spellings into one form.
 *
 * @param key a string in which `{0}` stands for the first argument and `{0.customer.id}` for a path in it; for handlers also
 *   `{params.x}`, `{body.x}`, `{query.x}`, `{headers.x}`, `{user.x}`, `{data.x}`, `{args.x}`; an array of such strings; a
 *   function of the method's arguments, or `fromContext(…)`, that returns a string or an array
 * @throws LockOptionsError when the class is defined: for a key that cannot be parsed, a bad option, a second `@Locked`, a class
 *   compiled without `experimentalDecorators`, or `@Locked` without its parentheses
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
>(
  key: Key | ((...args: KeyArgs) => string | readonly string[]),
  options?: LockedOptions<AnswerArgs<Key, Args>, Value, Way>,
): LockedDecorator<Key, KeyArgs, Args, Value, Way>;
export function Locked(...given: [key: AnyKey, options?: AnyLockedOptions]): MethodDecorator {
  refuseBareUse('@Locked', "@Locked('key')", given);
  const [key, options = {}] = given;
  return (target, property, descriptor: PropertyDescriptor | undefined) => {
    refuseStandard('@Locked', property);
    if (typeof target === 'function') {
      if (property === undefined) {
        throw new LockOptionsError(`@Locked is for methods: ${target.name} is a class. Put it on each method.`);
      }
      throw new LockOptionsError(
        `${target.name}.${String(property)} is static: @Locked needs an instance made by Nest. Use LockService.withLock.`,
      );
    }
    const name = `${target.constructor.name}.${String(property)}`;
    const method: unknown = descriptor?.value;
    if (!descriptor || typeof method !== 'function') {
      throw new LockOptionsError(`@Locked belongs on a method: ${name} is not one.`);
    }
    if (planOf(method))
      throw new LockOptionsError(
        `${name} has two @Locked decorators: take one of the locks with LockService.withLock.`,
      );
    const returnType: unknown = Reflect.getMetadata('design:returntype', target, property);
    if (SYNCHRONOUS.has(returnType)) {
      const hint = returnType === Function ? ` ${IMPORT_AS_VALUE}` : '';
      throw new LockOptionsError(
        `${name} is @Locked and must return a Promise or an Observable. Make it async.${hint}`,
      );
    }
    const plan = readPlan(key, options, name, isObservableType(returnType));
    const service = injectInto(target, plan);
    const locked = wrap(method as (...args: unknown[]) => unknown, plan, service);
    copyMetadata(method, locked);
    setPlan(locked, plan);
    const interceptors = (Reflect.getOwnMetadata(INTERCEPTORS, locked) as unknown[] | undefined) ?? [];
    // First, whatever the order of the decorators: interceptors inside, like a transaction, end before the release.
    Reflect.defineMetadata(INTERCEPTORS, [lockedInterceptorOf(plan.registration), ...interceptors], locked);
    descriptor.value = locked as never;
  };
}

const INTERCEPTORS = '__interceptors__'; // INTERCEPTORS_METADATA of Nest
/** The metadata of a return type that is imported as a type only: it says no more than Function. */
const IMPORT_AS_VALUE =
  'If it returns an Observable, import that as a value, not with "import type" or "import { type Observable }".';
const SYNCHRONOUS = new Set<unknown>([String, Number, Boolean, Array, Function]);

/** @throws LockOptionsError that names the method */
function readPlan(...[key, options, name, returnsObservable]: ConstructorParameters<typeof LockedPlan>): LockedPlan {
  try {
    return new LockedPlan(key, options, name, returnsObservable);
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    throw new LockOptionsError(`@Locked on ${name}: ${error.message}`, { cause: error });
  }
}

function wrap(
  method: (...args: unknown[]) => unknown,
  plan: LockedPlan,
  serviceOf: (self: unknown) => LockService,
): (...args: unknown[]) => unknown {
  return new Proxy(method, {
    apply(target, self: unknown, args: unknown[]) {
      const run = () => Reflect.apply(target, self, args);
      const call = plan.isForInterceptor ? InterceptedCall.current() : undefined;
      if (call?.plan === plan) return call.enter(run);
      if (plan.returnsObservable) return streamUnderLock(plan, () => serviceOf(self), args, run);
      return loggingStreams(promiseUnderLock(plan, () => serviceOf(self), args, run));
    },
  });
}

/**
 * Logs that a method returned an undeclared Observable. Its caller expects one, calls `subscribe` on the promise and fails
 * there, so it never sees the rejection, which must not end the process either.
 */
function loggingStreams(call: Promise<unknown>): Promise<unknown> {
  const logged: Promise<unknown> = call.catch((error: unknown) => {
    if (error instanceof UndeclaredStreamError) {
      logged.catch(() => {});
      new Logger('Locked').error(error.message);
    }
    throw error;
  });
  return logged;
}

class UndeclaredStreamError extends LockOptionsError {}

async function promiseUnderLock(
  plan: LockedPlan,
  serviceOf: () => LockService,
  args: unknown[],
  run: () => unknown,
): Promise<unknown> {
  const [key, service] = await asked(plan, serviceOf, args);
  const work = async () => {
    const result = run();
    if (isObservable(result)) throw undeclaredStream(plan, 'an Observable');
    if (!isThenable(result)) throw notAsync(plan);
    const value = await result;
    if (isObservable(value)) throw undeclaredStream(plan, 'a Promise of an Observable');
    return value;
  };
  return service.withLockOr(key, plan.options, work, (error) => plan.whenRefused(error, args), plan);
}

function streamUnderLock(
  plan: LockedPlan,
  serviceOf: () => LockService,
  args: unknown[],
  run: () => unknown,
): Observable<unknown> {
  const open = () => {
    const result = run();
    return isObservable(result) ? result : throwError(() => notAsync(plan));
  };
  return lockedStream<unknown>(async (signal, work, instead) => {
    const [key, service] = await asked(plan, serviceOf, args);
    const whenRefused = async (error: unknown) => {
      const value = await plan.whenRefused(error, args);
      if (plan.onContended !== 'skip') instead(value);
    };
    return service.withLockOr(key, { ...plan.options, signal }, work, whenRefused, plan);
  }, open);
}

/** The key of a call, or its keys, and the service that locks them. */
async function asked(
  plan: LockedPlan,
  serviceOf: () => LockService,
  args: unknown[],
): Promise<[key: OneOrMoreKeys, service: LockService]> {
  try {
    return [keyOfCall(plan, args), serviceOf()];
  } catch (error) {
    await loopTurn(); // or a loop of calls that fail would block the event loop
    throw error;
  }
}

/** The key of a call. One made of the request needs the interceptor: without it the method does not run. */
function keyOfCall(plan: LockedPlan, args: unknown[]): OneOrMoreKeys {
  if (plan.origin !== 'request') return plan.keyOfArguments(args);
  throw new LockOptionsError(
    `${plan.name} was called without LockedInterceptor, which takes a lock whose key is made of the request: it did not ` +
      'run. Let Nest call the handler (a GraphQL field resolver needs fieldResolverEnhancers: ["interceptors"]), or use ' +
      'a key made of arguments.',
  );
}

function isObservableType(type: unknown): boolean {
  return typeof type === 'function' && (type === Observable || typeof type.prototype?.subscribe === 'function');
}

function undeclaredStream({ name }: LockedPlan, got: string): LockOptionsError {
  return new UndeclaredStreamError(
    `${name} returned ${got}, but is not declared to return an Observable: write its return type, ": Observable<…>", ` +
      'import Observable as a value, not with "import type", and compile with emitDecoratorMetadata, so that @Locked ' +
      'can hold the lock from the subscription on. The Observable was not subscribed to.',
  );
}
