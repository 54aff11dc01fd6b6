import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';
import { methodsOf, prototypeOf } from '../injection/decorated-methods.js';
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
      const prototype = prototypeOf(provider);
      if (!prototype) continue;
      const instance = provider.instance as object;
      const plan = lockedMethods(instance, prototype).find(
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

/** The locked methods of an instance, without those that it replaces by a property. */
function lockedMethods(instance: object, prototype: object): LockedPlan[] {
  return [...methodsOf(prototype)].flatMap(([name, [{ method }]]) => {
    const plan = method && planOf(method);
    // A lock whose key is made of the request is acquired by the interceptor, which has a service of its own.
    return plan && plan.origin !== 'request' && !Object.hasOwn(instance, name) ? plan : [];
  });
}
