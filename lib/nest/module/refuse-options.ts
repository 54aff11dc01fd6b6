import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import type { LockService } from '../../core/service/lock.service.js';
import { notesOf, type Host } from '../injection/decorated-methods.js';
import { isMade } from '../injection/injected-service.js';
import { getLockServiceToken } from '../injection/tokens.js';
import { lockedMethodOf, type LockedMethod } from '../locked/locked-method.js';

/**
 * Refuses methods whose options the service of their registration would refuse at each call: an unknown policy, a mode that its
 * store does not know, a time out of bounds.
 * @throws LockOptionsError
 */
export function refuseOptions(hosts: readonly Host[], modules: ModulesContainer): void {
  for (const { module, methods } of hosts) {
    for (const [{ method }] of methods) {
      const locked = method && lockedMethodOf(method);
      const service = locked && serviceOf(locked.registration, modules);
      if (!service) continue;
      const { decorator = locked.decorator } = notesOf(method).find(({ keepsLock }) => keepsLock) ?? {};
      const { name, registration } = locked;
      try {
        checkOptions(method, locked, service);
      } catch (error) {
        if (!(error instanceof LockOptionsError)) throw error;
        const where = registration === DEFAULT_REGISTRATION ? '' : ` of the registration ${quoted(registration)}`;
        const message = `${name} in ${module.name} is ${decorator}${where}. ${error.message}`;
        throw new LockOptionsError(message, { cause: error });
      }
    }
  }
}

/** @throws LockOptionsError */
function checkOptions(method: object, { options, hold }: LockedMethod, service: LockService): void {
  const { holdMs } = service.check(options, hold);
  if (!holdMs && notesOf(method).some(({ keepsLock }) => keepsLock)) {
    throw new LockOptionsError(
      `The policy ${quoted(options!.policy!)} has no holdMs, the time to keep the lock of a run: add it to the policy or the decorator.`,
    );
  }
}

/** Returns the service of a registration; undefined if a test has replaced it. */
function serviceOf(registration: string, modules: ModulesContainer): LockService | undefined {
  const token = getLockServiceToken(registration);
  return [...modules.values()].map(({ providers }): unknown => providers.get(token)?.instance).find(isMade);
}
