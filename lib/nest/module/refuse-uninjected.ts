import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { serviceProperty } from '../injection/injected-service.js';
import { planOf, type LockedPlan } from '../locked/locked-plan.js';

/**
 * Looks for instances with locked methods that Nest did not make, and so did not inject the service into: each call would
 * fail. Instances that are made later, such as those of a request, are not seen.
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

/** The locked methods of an instance. Reads none of its properties: it may be a mock, or have getters that fail. */
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
      // A lock whose key is made of the request is acquired by the interceptor, which has a service of its own.
      if (plan && plan.origin !== 'request' && !Object.hasOwn(instance, name)) plans.push(plan);
    }
  }
  return plans;
}
