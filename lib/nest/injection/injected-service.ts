import { Inject, Logger } from '@nestjs/common';
import { isObservable } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { yieldToEventLoop } from '../../core/time/event-loop.js';
import type { DecoratedMethod, Method } from './method-decorator.js';
import { getLockServiceToken } from './tokens.js';

/** Returns the property that holds the service of a registration. Nest's error names it if the module is missing. */
function serviceProperty(registration: string): symbol {
  const options = registration === DEFAULT_REGISTRATION ? '' : `{ name: ${quoted(registration)} }`;
  return Symbol.for(`LockService of RedisLockModule.forRoot(${options})`);
}

/**
 * Makes Nest inject the service into instances of the class, so that a missing module fails the start of the application.
 * @returns a function that returns the service of an instance
 */
export function injectInto(
  { target, name }: Pick<DecoratedMethod, 'target' | 'name'>,
  registration: string,
): (self: unknown) => LockService {
  const property = serviceProperty(registration);
  Inject(getLockServiceToken(registration))(target, property);
  return (self) => {
    const service = (self as Record<symbol, unknown> | undefined)?.[property];
    if (service) return injectedService(service, name);
    throw new LockOptionsError(
      `${target.constructor.name} has no LockService: the instance was not created by Nest, or the method was called ` +
        'without its object. The method did not run. Let Nest create the instance, with useClass or with moduleRef.create in a factory. ' +
        'In a test, use Test.createTestingModule with LockTestingModule.forRoot(), or withMemoryLocks(instance), both of ' +
        'nest-redis-lock/testing. In a constructor nothing is injected yet: call the method in onModuleInit.',
    );
  };
}

/** One call of a method that runs with the service of its instance. */
export interface ServedCall {
  readonly args: unknown[];
  /** Runs the method itself. */
  readonly run: () => unknown;
  /** @throws LockOptionsError if the instance has no service */
  readonly service: () => LockService;
}

/** Runs the calls of one method, with the service of a registration. */
interface MethodServer {
  readonly registration: string;
  /** For messages: `@Locked`. */
  readonly decorator: string;
  serve(call: ServedCall): unknown;
}

/**
 * Replaces a method by a wrapper that keeps the metadata of other decorators, and makes Nest inject the service.
 * @param server runs the calls of the method
 */
export function serveMethod(decorated: DecoratedMethod, server: MethodServer): Method {
  const { method, descriptor } = decorated;
  const serviceOf = injectInto(decorated, server.registration);
  const check = resultCheck(decorated.name, server.decorator);
  const wrapper = new Proxy(method, {
    apply: (target, self: unknown, args: unknown[]) =>
      server.serve({ args, run: () => check(Reflect.apply(target, self, args)), service: () => serviceOf(self) }),
  });
  for (const key of Reflect.getOwnMetadataKeys(method)) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), wrapper);
  }
  descriptor.value = wrapper;
  return wrapper;
}

/**
 * Checks the result of a method. With a plain value the work is done, so the callers get the value. The work of a generator would
 * begin only after the release.
 */
function resultCheck(name: string, decorator: string): (result: unknown) => unknown {
  let isWarned = false;
  return (result) => {
    if (isThenable(result) || isObservable(result)) return result;
    if (typeof (result as Iterator<unknown> | undefined | null)?.next === 'function') {
      throw new LockOptionsError(
        `${name} is ${decorator} and returned a generator, whose code would run without the lock: it did not run. Make the ` +
          'method async and return a list, or call it under LockService.withLock, and read the generator there.',
      );
    }
    if (!isWarned) {
      isWarned = true;
      new Logger(decorator.slice(1)).warn(
        `${name} is ${decorator} and returned a plain value. Its callers get a Promise: make the method async.`,
      );
    }
    return result;
  };
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function';
}

/**
 * Finds what a call needs, and does its work. If nothing is found, the call fails in the next turn of the event loop, so that a loop
 * of such calls does not block it.
 */
export async function workWith<Needed, Result>(
  find: () => Needed,
  work: (needed: Needed) => Promise<Result>,
): Promise<Result> {
  let needed: Needed;
  try {
    needed = find();
  } catch (error) {
    await yieldToEventLoop();
    throw error;
  }
  return work(needed);
}

/**
 * Returns the service that Nest has injected into an instance, for checks at the start of the application.
 * @param where the method, its module and its decorator, for messages
 * @param otherwise more advice for an instance without a service
 * @throws LockOptionsError if there is none
 */
export function serviceIn(instance: object, registration: string, where: string, otherwise = ''): LockService {
  const service: unknown = Reflect.get(instance, serviceProperty(registration));
  if (service) return service as LockService;
  throw new LockOptionsError(
    `${where}, but has no LockService: Nest injects into what it creates itself, not into what useFactory or useValue ` +
      `provides. Write useClass, or moduleRef.create(${instance.constructor.name}) in the factory${otherwise}.`,
  );
}

/**
 * Checks that a lock service was injected: with a mock, nothing would be locked.
 * @param method `Class.method`, for the message
 * @throws LockOptionsError
 */
export function injectedService(service: unknown, method: string): LockService {
  if (isMade(service)) return service;
  throw new LockOptionsError(`${method} did not run: its LockService is ${describe(service)}`);
}

/** Whether the service was constructed. `instanceof` alone is not enough: mocks of the class are instances of it too. */
export function isMade(service: unknown): service is LockService {
  return service instanceof LockService && Object.hasOwn(service, 'registration');
}

function describe(service: unknown): string {
  const { registration } = Object(service) as { registration?: unknown };
  const type = (Object.getPrototypeOf(Object(service)) as object | null)?.constructor;
  const name = type === Object ? undefined : type?.name;
  if (name === 'LockService' && typeof registration === 'string') {
    return 'a LockService of another copy of nest-redis-lock. Run npm ls nest-redis-lock to see why it is installed twice.';
  }
  const kind = name === undefined ? 'a plain object' : `an object of the class ${name}`;
  const stub = service instanceof LockService ? ' that RedisLockModule did not create' : '';
  return (
    `${kind}${stub}, probably a mock. In a test, import LockTestingModule.forRoot() of nest-redis-lock/testing, which needs ` +
    'no Redis, and leave LockService as it is.'
  );
}
