import { noteOn } from './decorated-methods.js';
import { methodDecorator } from './method-decorator.js';

/**
 * Says of an override that it is meant to have none of `@Locked`, `@Limited`, `@LeaderOnly`, `@WhileLeader` and `@Fenced`, though the
 * method of the base class has one: it runs without the lock, or calls `super`, which takes it. Without this, the start of the
 * application logs a warning. It changes nothing else: on a method that overrides none it has no effect.
 * @throws LockOptionsError when the class is defined, unless it is on a method, and beside `@Locked` or `@Limited`
 */
export function NotLocked(): MethodDecorator;
export function NotLocked(...given: []): MethodDecorator {
  return methodDecorator('@NotLocked', '@NotLocked()', given, ({ method }) =>
    noteOn(method, { decorator: '@NotLocked' }),
  );
}
