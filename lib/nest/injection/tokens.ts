import { Inject } from '@nestjs/common';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { noteCopy } from './copies.js';
import { decorator } from './method-decorator.js';

// Every entry point that injects the service loads this module, so no bundler removes the call.
noteCopy();

/**
 * Returns the injection token of the `LockService` of a registration.
 * @param registration the `name` of the registration; by default the one without a name
 */
export function getLockServiceToken(registration: string = DEFAULT_REGISTRATION): typeof LockService | string {
  return registration === DEFAULT_REGISTRATION ? LockService : `LockService(${registration})`;
}

/** Returns the registration of an injection token; undefined for other tokens. */
export function registrationOf(token: unknown): string | undefined {
  if (token === LockService) return DEFAULT_REGISTRATION;
  return typeof token === 'string' ? /^LockService\((.+)\)$/s.exec(token)?.[1] : undefined;
}

/** Injects the `LockService` of the registration with this `name`. */
export function InjectLockService(registration?: string): PropertyDecorator & ParameterDecorator;
export function InjectLockService(...given: [registration?: string]): PropertyDecorator & ParameterDecorator {
  const inject = Inject(getLockServiceToken(given[0]));
  return decorator<number>('@InjectLockService', '@InjectLockService()', given, (target, member, index) =>
    inject(target, member as string | symbol, index as number),
  );
}
