import { Inject, Logger } from '@nestjs/common';
import { isObservable } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { yieldToEventLoop } from '../../core/time/event-loop.js';
import type { DecoratedMethod, Method } from './method-decorator.js';
import { getLockServiceToken } from './tokens.js';

/** The property in which an instance has the service of a registration. Nest's error names it when the module is missing. */
function serviceProperty(registration: string): symbol {
  const beside = registration === DEFAULT_REGISTRATION ? '' : `{ name: ${quoted(registration)} }`;
  return Symbol.for(`LockService of RedisLockModule.forRoot(${beside})`);
}

/**
 * Has Nest inject the service into instances of the class, so that a missing module fails the start of the application.
 * @returns finds the service of an instance
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
      `${target.constructor.name} has no LockService: the instance was not made by Nest, or the method was called ` +
        'without its object. It did not run. Let Nest make it, by useClass or with moduleRef.create in a factory; ' +
        'in a test by Test.createTestingModule, with LockTestingModule.forRoot(), or call withMemoryLocks(instance), both of ' +
        'nest-redis-lock/testing. In a constructor nothing is injected yet: call it in onModuleInit.',
    );
  };
}

/** One call of a method that runs with the service of its instance. */
export interface ServedCall {
  readonly args: unknown[];
  /** Runs the method itself. */
  readonly run: () => unknown;
  /** @throws LockOptionsError where the instance has no service */
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
 * Puts a wrapper in the place of a method, with all that other decorators have noted on it, and has the service injected.
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
 * Checks what a method has returned. The work behind a plain value is done, so its callers get the value. That behind a generator
 * would begin only after the lock was released.
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
 * Does the work of a call with what it needs, which is found at once or not at all. Then it fails in the next turn of the event
 * loop, which a loop of such calls would block otherwise.
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
 * The service that Nest has injected into an instance, for a look at the start of the application.
 * @param where the method, its module and its decorator, for messages
 * @param otherwise more advice for an instance without a service
 * @throws LockOptionsError where there is none
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
 * Checks that a lock service was injected: with a mock in its place nothing would be locked.
 * @param method `Class.method`, for the message
 * @throws LockOptionsError
 */
export function injectedService(service: unknown, method: string): LockService {
  if (isMade(service)) return service;
  throw new LockOptionsError(`${method} did not run: its LockService is ${describe(service)}`);
}

/** Whether the service was constructed: the mock that a library makes from the class is an instance of it, too. */
export function isMade(service: unknown): service is LockService {
  return service instanceof LockService && Object.hasOwn(service, 'registration');
}

function describe(service: unknown): string {
  const { registration } = Object(service) as { registration?: unknown };
  const type = (Object.getPrototypeOf(Object(service)) as object | null)?.constructor;
  const name = type === Object ? undefined : type?.name;
  if (name === 'LockService' && typeof registration === 'string') {
    return 'a LockService of another copy of nest-redis-lock. Run npm ls nest-redis-lock to see why it is there twice.';
  }
  const kind = name === undefined ? 'a plain object' : `an object of the class ${name}`;
  const stub = service instanceof LockService ? ' that RedisLockModule did not create' : '';
  return (
    `${kind}${stub}, as when it is mocked. In a test import LockTestingModule.forRoot() of nest-redis-lock/testing, which needs ` +
    'no Redis, and leave LockService as it is.'
  );
}
