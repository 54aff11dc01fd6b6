import { LockOptionsError } from '../../api/errors.js';
import type { Leadership } from '../../api/leader.js';
import { injectInto, isThenable, orFailLater, serveMethod, type ServedCall } from '../injection/injected-service.js';
import { methodDecorator, reading, type DecoratedMethod } from '../injection/method-decorator.js';
import { readLeaderPlan, setLeaderPlan, type LeaderMethodOptions, type LeaderPlan } from './leader-plan.js';

type AsyncMethod = (...args: never) => Promise<unknown>;

/** A follower returns undefined. */
type CanBeSkipped<Method extends AsyncMethod> =
  undefined extends Awaited<ReturnType<Method>>
    ? unknown
    : { error: 'a call of a follower returns undefined: let the method return that, too' };

/** Fits methods that return a Promise of what can be undefined. */
export interface LeaderOnlyDecorator {
  <Method extends AsyncMethod>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> & CanBeSkipped<Method>,
  ): void;
  /** Never called: with it the decorator fits where a `MethodDecorator` is wanted, as `@Locked` does. */
  (target: object, name: string | symbol, descriptor: never, never: never): void;
}

/** Fits methods that take a `Leadership`, or nothing, and return a Promise. */
export interface WhileLeaderDecorator {
  <Method extends (leadership: Leadership) => Promise<unknown>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method>,
  ): void;
  /** Never called: with it the decorator fits where a `MethodDecorator` is wanted, as `@Locked` does. */
  (target: object, name: string | symbol, descriptor: never, never: never): void;
}

/**
 * Runs the method only in the process that leads. In other processes calls return `undefined`, and the method does not run. It
 * runs under the leader's lock, with its own handle, which `locks.current()` returns; the call rejects with `LockLostError` if
 * the lock was lost while it ran.
 *
 * The process takes part in the election as soon as the application has started.
 *
 * @param key the key of the election: a text, which nothing is filled into
 * @throws LockOptionsError when the class is defined: for a key that cannot be parsed or a bad option; when the application
 *   starts: for a class of request or transient scope, or options that differ from those of the same election elsewhere
 */
export function LeaderOnly(key: string, options?: LeaderMethodOptions): LeaderOnlyDecorator;
export function LeaderOnly(...given: [key: string, options?: LeaderMethodOptions]): MethodDecorator {
  return leaderDecorator('@LeaderOnly', given, (decorated, plan) =>
    serveMethod(decorated, { registration: plan.registration, serve: (call) => ifLeader(plan, call) }),
  );
}

/**
 * Calls the method with the leadership when this process is elected, and again in each later term. Your code need not call it.
 * The lock is held until the method has returned, so it should end when `leadership.signal` aborts. If it returns earlier, the
 * process stays the leader. If it throws, the error is logged, and the process resigns and campaigns again after a pause.
 *
 * @param key the key of the election: a text, which nothing is filled into
 * @throws LockOptionsError like `@LeaderOnly`
 */
export function WhileLeader(key: string, options?: LeaderMethodOptions): WhileLeaderDecorator;
export function WhileLeader(...given: [key: string, options?: LeaderMethodOptions]): MethodDecorator {
  return leaderDecorator('@WhileLeader', given, (decorated, plan) => {
    injectInto(decorated, plan.registration);
    return decorated.method;
  });
}

/** @param decorate returns the method that keeps the plan */
function leaderDecorator(
  decorator: LeaderPlan['decorator'],
  given: [key: string, options?: LeaderMethodOptions],
  decorate: (decorated: DecoratedMethod, plan: LeaderPlan) => object,
): MethodDecorator {
  return methodDecorator(decorator, `${decorator}('key')`, given, (decorated) => {
    const [key, options = {}] = given;
    const plan = reading(`${decorator} on ${decorated.name}`, () => readLeaderPlan(decorator, decorated, key, options));
    setLeaderPlan(decorate(decorated, plan), plan);
  });
}

async function ifLeader(plan: LeaderPlan, call: ServedCall): Promise<unknown> {
  const locks = await orFailLater(call.service);
  return locks.ifLeader(plan.key, plan.options, async () => {
    const result = call.run();
    if (isThenable(result)) return result;
    throw new LockOptionsError(
      `${plan.name} is @LeaderOnly and must return a Promise: got something else. Make it async.`,
    );
  });
}
