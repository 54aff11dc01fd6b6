import { LockOptionsError } from '../../api/errors.js';
import type { Leadership } from '../../api/leader.js';
import type { LockService } from '../../core/service/lock.service.js';
import { loopTurn } from '../../core/time/event-loop.js';
import { copyMetadata } from '../injection/copy-metadata.js';
import { injectInto } from '../injection/injected-service.js';
import { nameOf } from '../injection/name-of.js';
import { refuseBareUse } from '../injection/refuse-bare-use.js';
import { refuseStandard } from '../injection/refuse-standard.js';
import { LeaderPlan, setLeaderPlan, type LeaderMethodOptions } from './leader-plan.js';

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
  refuseBareUse('@LeaderOnly', "@LeaderOnly('key')", given);
  const [key, options = {}] = given;
  return (target, property, descriptor: PropertyDescriptor | undefined) => {
    const method = methodOf('@LeaderOnly', target, property, descriptor);
    const plan = new LeaderPlan('@LeaderOnly', key, options, property, nameOf(target, property));
    const serviceOf = injectInto(target, plan);
    const wrapped = new Proxy(method, {
      apply: (each, self: unknown, args: unknown[]) =>
        ifLeader(
          plan,
          () => serviceOf(self),
          () => Reflect.apply(each, self, args),
        ),
    });
    copyMetadata(method, wrapped);
    setLeaderPlan(wrapped, plan);
    descriptor!.value = wrapped as never;
  };
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
  refuseBareUse('@WhileLeader', "@WhileLeader('key')", given);
  const [key, options = {}] = given;
  return (target, property, descriptor: PropertyDescriptor | undefined) => {
    const method = methodOf('@WhileLeader', target, property, descriptor);
    const plan = new LeaderPlan('@WhileLeader', key, options, property, nameOf(target, property));
    injectInto(target, plan);
    setLeaderPlan(method, plan);
  };
}

async function ifLeader(plan: LeaderPlan, serviceOf: () => LockService, run: () => unknown): Promise<unknown> {
  let service: LockService;
  try {
    service = serviceOf();
  } catch (error) {
    await loopTurn(); // or a loop of calls that fail would block the event loop
    throw error;
  }
  return service.ifLeader(plan.key, plan.options, async () => {
    const result = run();
    if (typeof (result as PromiseLike<unknown> | undefined | null)?.then === 'function') return result;
    throw new LockOptionsError(
      `${plan.name} is @LeaderOnly and must return a Promise: got something else. Make it async.`,
    );
  });
}

/** @throws LockOptionsError unless it is on a method of instances */
function methodOf(
  decorator: string,
  target: object,
  property: string | symbol | undefined,
  descriptor: PropertyDescriptor | undefined,
): (...args: unknown[]) => unknown {
  refuseStandard(decorator, property);
  const method: unknown = descriptor?.value;
  if (typeof target === 'function' || property === undefined || typeof method !== 'function') {
    throw new LockOptionsError(
      `${decorator} belongs on a method of a class that Nest makes: ${nameOf(target, property)} is not one.`,
    );
  }
  return method as (...args: unknown[]) => unknown;
}
