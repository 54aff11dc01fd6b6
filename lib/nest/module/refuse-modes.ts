import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import type { LockService } from '../../core/service/lock.service.js';
import type { Host } from '../injection/decorated-methods.js';
import { isMade } from '../injection/injected-service.js';
import { getLockServiceToken } from '../injection/tokens.js';
import { lockedMethodOf } from '../locked/locked-method.js';

/**
 * Refuses methods that hold their locks in a way that the store of their registration does not know: each call would fail.
 * @throws LockOptionsError
 */
export function refuseModes(hosts: readonly Host[], modules: ModulesContainer): void {
  for (const { module, methods } of hosts) {
    for (const [{ method }] of methods) {
      const locked = method && lockedMethodOf(method);
      const why = locked?.hold && serviceOf(locked.registration, modules)?.whyNot(locked.hold);
      if (why !== undefined) {
        throw new LockOptionsError(`${locked!.name} in ${module.name} is ${locked!.decorator}. ${why}`);
      }
    }
  }
}

/** The service of a registration; undefined where a test has put something else in its place. */
function serviceOf(registration: string, modules: ModulesContainer): LockService | undefined {
  const token = getLockServiceToken(registration);
  return [...modules.values()].map(({ providers }): unknown => providers.get(token)?.instance).find(isMade);
}
