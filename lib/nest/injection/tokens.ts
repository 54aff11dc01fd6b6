import { Inject } from '@nestjs/common';
import { DEFAULT_CONNECTION } from '../../core/options/service-options.js';
import { LockService } from '../../core/service/lock.service.js';
import { refuseStandard } from './refuse-standard.js';

/**
 * The injection token of the `LockService` of a registration.
 * @param connection the `name` it was registered with; default: the registration without a name
 */
export function getLockServiceToken(connection: string = DEFAULT_CONNECTION): typeof LockService | string {
  return connection === DEFAULT_CONNECTION ? LockService : `LockService(${connection})`;
}

/** Injects the `LockService` of the registration with this `name`. */
export function InjectLockService(connection?: string): PropertyDecorator & ParameterDecorator {
  const inject = Inject(getLockServiceToken(connection));
  return (target: object, property: string | symbol | undefined, index?: number) => {
    refuseStandard('@InjectLockService', property);
    inject(target, property as string | symbol, index as number);
  };
}
