import { noteOn } from './decorated-methods.js';
import { methodDecorator } from './method-decorator.js';

/**
 * Marks an override that has none of `@Locked`, `@Limited`, `@LeaderOnly`, `@WhileLeader` and `@Fenced` on purpose, although the
 * method of the base class has one. The override runs without the lock, or calls `super`, which takes it. Without this mark, the
 * start of the application logs a warning. It has no other effect.
 * @throws LockOptionsError when the class is defined, if it is not on a method, or is together with `@Locked` or `@Limited`
 */
export function NotLocked(): MethodDecorator;
export function NotLocked(...given: []): MethodDecorator {
  return methodDecorator('@NotLocked', '@NotLocked()', given, ({ method }) =>
    noteOn(method, { decorator: '@NotLocked' }),
  );
}
