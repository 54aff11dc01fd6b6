import { LockOptionsError } from '../../api/errors.js';
import type { LeaderOptions } from '../../api/leader.js';
import { KeyTemplate } from '../../core/keys/key.js';
import { unfit } from '../../core/options/checks.js';
import { checkLeaderOptions } from '../../core/options/leader-options.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { noteOn } from '../injection/decorated-methods.js';
import type { DecoratedMethod } from '../injection/method-decorator.js';
import { checkRegistration } from '../injection/tokens.js';

/** Options of `@LeaderOnly` and `@WhileLeader`. */
export interface LeaderMethodOptions extends LeaderOptions {
  /**
   * The `name` of the registration that keeps the election.
   * @default the registration without a name
   */
  registration?: string;
}

/** The election of one method: read and checked when the class is defined. */
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
export function readLeaderPlan(
  decorator: LeaderPlan['decorator'],
  { property, name }: DecoratedMethod,
  key: string,
  given: LeaderMethodOptions,
): LeaderPlan {
  checkLeaderOptions(given, ['registration']);
  const { registration = DEFAULT_REGISTRATION, ...options } = given;
  checkRegistration('registration', registration);
  if (typeof key !== 'string' || key === '' || new KeyTemplate(key).origin !== 'static') {
    throw unfit('the key', key, 'a fixed string like "outbox", since an election begins before there are any calls');
  }
  return { decorator, key, registration, options, property, name };
}

const PLAN = Symbol.for('nest-redis-lock:leader-plan');

/** @throws LockOptionsError when the method has another one */
export function setLeaderPlan(method: object, plan: LeaderPlan): void {
  if (leaderPlanOf(method)) {
    throw new LockOptionsError(`${plan.name} has two of @LeaderOnly and @WhileLeader: each method has one election.`);
  }
  Reflect.defineMetadata(PLAN, plan, method);
  const override = plan.decorator === '@WhileLeader' ? 'is never called' : 'runs without';
  noteOn(method, plan.name, { decorator: plan.decorator, override });
}

export function leaderPlanOf(method: object): LeaderPlan | undefined {
  return Reflect.getOwnMetadata(PLAN, method) as LeaderPlan | undefined;
}
