import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { serviceProperty } from '../injection/injected-service.js';
import { planOf, type LockedPlan } from '../locked/locked-plan.js';

/**
 * Looks for instances with locked methods that Nest has not made, and so has not injected the service into: each call
 * would fail. Those that are made later, for a request, say, are not seen.
 * @throws LockOptionsError
 */
export function refuseUninjected(modules: ModulesContainer): void {
  for (const module of modules.values()) {
    for (const provider of module.providers.values()) {
      if (!provider.isNotMetatype) continue;
      const instance: unknown = provider.instance;
      if (typeof instance !== 'object' || instance === null) continue;
      const plan = lockedMethods(instance).find(
        ({ registration }) => !Reflect.get(instance, serviceProperty(registration)),
      );
      if (plan === undefined) continue;
      throw new LockOptionsError(
        `${plan.name} in ${module.name} is @Locked, but has no LockService: Nest injects into what it creates itself, not ` +
          `into what useFactory or useValue provides. Write useClass, or moduleRef.create(${instance.constructor.name}) ` +
          'in the factory; or call LockService.withLock in the method, without @Locked.',
      );
    }
  }
}

/** Those whose plain methods are called. Reads no property of the instance: it may be a mock, or have getters that fail. */
function lockedMethods(instance: object): LockedPlan[] {
  const seen = new Set<PropertyKey>();
  const plans: LockedPlan[] = [];
  for (
    let owner = Reflect.getPrototypeOf(instance);
    owner !== null && owner !== Object.prototype;
    owner = Reflect.getPrototypeOf(owner)
  ) {
    for (const name of Reflect.ownKeys(owner)) {
      if (seen.has(name)) continue; // overridden
      seen.add(name);
      const method: unknown = Reflect.getOwnPropertyDescriptor(owner, name)?.value;
      const plan = typeof method === 'function' ? planOf(method) : undefined;
      // A key that is made of the request is taken by the interceptor, which has a service of its own.
      if (plan && plan.origin !== 'request' && !Object.hasOwn(instance, name)) plans.push(plan);
    }
  }
  return plans;
}
