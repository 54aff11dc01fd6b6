import { LockOptionsError } from '../api/errors.js';
import { registrationOf } from '../nest/injection/tokens.js';
import { LockBench } from './lock-bench.js';

/**
 * Gives an instance that you made with `new` the lock services that Nest would inject into its properties, with locks in
 * memory. Its methods with `@Locked`, `@Limited` and `@LeaderOnly` then work, and its properties with `@InjectLockService` are set.
 * @param bench its `locks` are used for its own registration; for others, or without a bench, a new one is made
 * @returns the instance
 * @throws LockOptionsError if its class has none of these
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
      'Where a constructor takes a LockService, give it that of a LockBench: new LockBench().locks.',
  );
}

/** What `Inject` notes on a class of each property. */
interface InjectedProperty {
  key: string | symbol;
  type: unknown;
}

const INJECTED_PROPERTIES = 'self:properties_metadata'; // PROPERTY_DEPS_METADATA of Nest
