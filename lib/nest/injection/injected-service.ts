import { Inject } from '@nestjs/common';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { getLockServiceToken } from './tokens.js';

/** The property in which an instance has the service of a registration. Nest's error names it when the module is missing. */
export function serviceProperty(registration: string): symbol {
  const beside = registration === DEFAULT_REGISTRATION ? '' : `{ name: ${quoted(registration)} }`;
  return Symbol.for(`LockService of RedisLockModule.forRoot(${beside})`);
}

/**
 * Has Nest inject the service into instances of the class, so that a missing module fails the start of the application.
 * @param name `Class.method`, for messages
 * @returns finds the service of an instance
 */
export function injectInto(
  target: object,
  { registration, name }: { registration: string; name: string },
): (self: unknown) => LockService {
  const property = serviceProperty(registration);
  Inject(getLockServiceToken(registration))(target, property);
  return (self) => {
    const service = (self as Record<symbol, unknown> | undefined)?.[property];
    if (service) return injectedService(service, name);
    throw new LockOptionsError(
      `${target.constructor.name} has no LockService: the instance was not made by Nest, or the method was called ` +
        'without its object. It did not run. Let Nest make it, by useClass or with moduleRef.create in a factory; ' +
        'in a test by Test.createTestingModule, with LockTestingModule.forRoot(), or call withoutLocks(instance), both of ' +
        'nest-redis-lock/testing.',
    );
  };
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
function isMade(service: unknown): service is LockService {
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
