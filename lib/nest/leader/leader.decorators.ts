import { isObservable } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';
import type { LeaderOptions, Leadership } from '../../api/leader.js';
import { KeyTemplate } from '../../core/keys/key.js';
import { invalidOption } from '../../core/options/checks.js';
import { checkOptions } from '../../core/options/option-rows.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { noteOn } from '../injection/decorated-methods.js';
import { injectInto, serveMethod, workWith, type ServedCall } from '../injection/injected-service.js';
import {
  methodDecorator,
  type DecoratedMethod,
  type FitsMethodDecorator,
  type SkippingDecorator,
} from '../injection/method-decorator.js';

/** Options of `@LeaderOnly` and `@WhileLeader`. */
export interface LeaderMethodOptions extends LeaderOptions {
  /**
   * The `name` of the registration that keeps the election.
   * @default the registration without a name
   */
  registration?: string;
}

/** Fits methods whose Promise may resolve to undefined, since a follower returns undefined. */
export interface LeaderOnlyDecorator extends SkippingDecorator<'a call of a follower'> {}

/** Fits methods that take a `Leadership`, or nothing, and return a Promise. */
export interface WhileLeaderDecorator extends FitsMethodDecorator {
  <Method extends (leadership: Leadership) => Promise<unknown>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method>,
  ): void;
}

/**
 * Runs the method only in the process that leads. In other processes the method does not run, and calls return `undefined`. It runs
 * under the leader's lock; `locks.current()` returns the lock of the call. The call rejects with `LockLostError` if the lock was
 * lost while the method ran.
 *
 * The process takes part in the election as soon as the application has started.
 *
 * @param key the key of the election: a fixed string
 * @throws LockOptionsError when the class is defined: for an invalid key or option; when the application starts: for a request-scoped
 *   or transient class, or for options that differ from the same election elsewhere
 */
export function LeaderOnly(key: string, options?: LeaderMethodOptions): LeaderOnlyDecorator;
export function LeaderOnly(...given: [key: string, options?: LeaderMethodOptions]): MethodDecorator {
  return leaderDecorator('@LeaderOnly', given, (decorated, plan) =>
    serveMethod(decorated, { ...plan, serve: (call) => ifLeader(plan, call) }),
  );
}

/**
 * Calls the method with the leadership when this process is elected, and again in each later term. Your code need not call it.
 * The lock is held until the method has returned, so it should end when `leadership.signal` aborts. If it returns earlier, the
 * process stays the leader. If it throws, the library logs the error, and the process resigns and campaigns again after a pause.
 *
 * @param key the key of the election: a fixed string
 * @throws LockOptionsError like `@LeaderOnly`
 */
export function WhileLeader(key: string, options?: LeaderMethodOptions): WhileLeaderDecorator;
export function WhileLeader(...given: [key: string, options?: LeaderMethodOptions]): MethodDecorator {
  return leaderDecorator('@WhileLeader', given, (decorated, plan) => {
    injectInto(decorated, plan.registration);
    return decorated.method;
  });
}

/** @param decorate returns the method that gets the metadata */
function leaderDecorator(
  decorator: LeaderPlan['decorator'],
  given: [key: string, options?: LeaderMethodOptions],
  decorate: (decorated: DecoratedMethod, plan: LeaderPlan) => object,
): MethodDecorator {
  return methodDecorator(decorator, `${decorator}('key')`, given, (decorated) => {
    const [key, options = {}] = given;
    const plan = readPlan(decorator, decorated, key, options);
    const method = decorate(decorated, plan);
    if (leaderPlanOf(method)) {
      throw new LockOptionsError('the method has another @LeaderOnly or @WhileLeader: keep one of them.');
    }
    Reflect.defineMetadata(PLAN, plan, method);
    noteOn(method, {
      decorator,
      override: decorator === '@WhileLeader' ? 'is never called' : 'runs without',
    });
  });
}

function ifLeader(plan: LeaderPlan, call: ServedCall): Promise<unknown> {
  const work = async () => {
    const result = await call.run();
    if (!isObservable(result)) return result;
    throw new LockOptionsError(`${plan.name} is @LeaderOnly and must return a Promise: got an Observable.`);
  };
  return workWith(call.service, (locks) => locks.ifLeader(plan.key, plan.options, work));
}

/** The election of one method, read and checked when the class is defined. */
export interface LeaderPlan {
  readonly decorator: '@LeaderOnly' | '@WhileLeader';
  readonly key: string;
  readonly registration: string;
  readonly options: LeaderOptions;
  readonly property: string | symbol;
  /** `Class.method`, for messages. */
  readonly name: string;
}

/** @throws LockOptionsError */
function readPlan(
  decorator: LeaderPlan['decorator'],
  { property, name }: DecoratedMethod,
  key: string,
  given: LeaderMethodOptions,
): LeaderPlan {
  checkOptions('@LeaderOnly', given);
  const { registration = DEFAULT_REGISTRATION, ...options } = given;
  if (typeof key !== 'string' || key === '' || new KeyTemplate(key).origin !== 'static') {
    throw invalidOption(
      'the key',
      key,
      'a fixed string like "outbox", since an election begins before there are any calls',
    );
  }
  return { decorator, key, registration, options, property, name };
}

const PLAN = Symbol.for('nest-redis-lock:leader-plan');

export function leaderPlanOf(method: object): LeaderPlan | undefined {
  return Reflect.getOwnMetadata(PLAN, method) as LeaderPlan | undefined;
}
