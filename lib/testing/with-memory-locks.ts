import { LockOptionsError } from '../api/errors.js';
import { registrationOf } from '../nest/injection/tokens.js';
import { LockBench } from './lock-bench.js';

/**
 * Injects lock services with locks in memory into an instance that you created with `new`. Its methods with `@Locked`,
 * `@Limited` and `@LeaderOnly` then work, and its properties with `@InjectLockService` are set.
 * @param bench the bench whose `locks` serve its registration; every other registration gets a new bench
 * @returns the instance
 * @throws LockOptionsError if its class has no such method or property
 */
export function withMemoryLocks<T extends object>(instance: T, bench = new LockBench()): T {
  const properties = (Reflect.getMetadata(INJECTED_PROPERTIES, instance.constructor) ?? []) as InjectedProperty[];
  const benches = new Map([[bench.locks.registration, bench]]);
  let isGiven = false;
  for (const { key, type } of properties) {
    const name = registrationOf(type);
    if (name === undefined) continue;
    if (!benches.has(name)) benches.set(name, new LockBench({ name }));
    isGiven = Reflect.set(instance, key, benches.get(name)!.locks);
  }
  if (isGiven) return instance;
  throw new LockOptionsError(
    `withMemoryLocks was given an instance of ${instance.constructor.name}, which has no method with @Locked or @Limited. ` +
      'If its constructor takes a LockService, pass new LockBench().locks.',
  );
}

/** The metadata that `Inject` keeps on a class for each property. */
interface InjectedProperty {
  key: string | symbol;
  type: unknown;
}

const INJECTED_PROPERTIES = 'self:properties_metadata'; // PROPERTY_DEPS_METADATA of Nest
