import { LockOptionsError } from '../../api/errors.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';

/** The property in which an instance has the service of a registration. Nest's error names it when the module is missing. */
export function serviceProperty(registration: string): symbol {
  const beside = registration === DEFAULT_REGISTRATION ? '' : `{ name: "${registration}" }`;
  return Symbol.for(`LockService of RedisLockModule.forRoot(${beside})`);
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
    `${kind}${stub}, as when it is mocked. In a test import RedisLockModule.forRoot({ memory: true }), which needs no ` +
    'Redis, and leave LockService as it is.'
  );
}
