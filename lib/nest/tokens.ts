import { Inject } from '@nestjs/common';
import { DEFAULT_CONNECTION } from '../resolve-options.js';
import { LockService } from '../service/lock.service.js';

/**
 * The injection token of the `LockService` of a registration.
 * @param connection the `name` it was registered with; default: the registration without a name
 */
export function getLockServiceToken(connection: string = DEFAULT_CONNECTION): typeof LockService | string {
  return connection === DEFAULT_CONNECTION ? LockService : `LockService(${connection})`;
}

/** Injects the `LockService` of the registration with this `name`. */
export function InjectLockService(connection?: string): PropertyDecorator & ParameterDecorator {
  return Inject(getLockServiceToken(connection));
}
