import { LockOptionsError } from '../../api/errors.js';
import { noteOn } from './decorated-methods.js';
import { nameOf } from './name-of.js';
import { refuseBareUse } from './refuse-bare-use.js';
import { refuseStandard } from './refuse-standard.js';

/**
 * Says of an override that it is meant to have none of `@Locked`, `@LeaderOnly`, `@WhileLeader` and `@Fenced`, though the
 * method of the base class has one: it runs without the lock, or calls `super`, which takes it. Without this, the start of the
 * application logs a warning. It changes nothing else: on a method that overrides none it has no effect.
 * @throws LockOptionsError when the class is defined, unless it is on a method, and beside `@Locked`
 */
export function NotLocked(): MethodDecorator;
export function NotLocked(...given: []): MethodDecorator {
  refuseBareUse('@NotLocked', '@NotLocked()', given);
  return (target, property: string | symbol | undefined, descriptor: PropertyDescriptor | undefined) => {
    refuseStandard('@NotLocked', property);
    const method: unknown = descriptor?.value;
    const name = nameOf(target, property);
    if (property === undefined || typeof method !== 'function') {
      throw new LockOptionsError(`@NotLocked belongs on a method: ${name} is not one.`);
    }
    noteOn(method, name, { decorator: '@NotLocked' });
  };
}
