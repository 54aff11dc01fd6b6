import { LockError, LockOptionsError } from '../../api/errors.js';
import type { LeaderOptions } from '../../api/leader.js';
import { KeyTemplate } from '../../core/keys/key-template.js';
import { unfit } from '../../core/options/checks.js';
import { checkLeaderOptions } from '../../core/options/leader-options.js';
import { DEFAULT_REGISTRATION } from '../../core/options/service-options.js';
import { methodsOf, noteOn } from '../injection/decorated-methods.js';

/** Options of `@LeaderOnly` and `@WhileLeader`. */
export interface LeaderMethodOptions extends LeaderOptions {
  /**
   * The `name` of the registration that keeps the election.
   * @default the registration without a name
   */
  registration?: string;
}

/** The election of one method: read and checked when the class is defined. */
export class LeaderPlan {
  readonly registration: string;
  readonly options: LeaderOptions;

  /** @throws LockOptionsError */
  constructor(
    readonly decorator: '@LeaderOnly' | '@WhileLeader',
    readonly key: string,
    given: LeaderMethodOptions,
    readonly property: string | symbol,
    /** `Class.method`, for messages. */
    readonly name: string,
  ) {
    try {
      checkLeaderOptions(given, ['registration']);
      const { registration = DEFAULT_REGISTRATION, ...options } = given;
      if (typeof registration !== 'string' || registration === '') {
        throw new LockOptionsError(
          `registration must be the name of a registration: got ${JSON.stringify(registration)}.`,
        );
      }
      if (typeof key !== 'string' || key === '' || new KeyTemplate(key).origin !== 'static') {
        throw unfit(
          'the key',
          key,
          'a fixed string like "outbox", since an election begins before there are any calls',
        );
      }
      this.registration = registration;
      this.options = options;
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      throw new LockOptionsError(`${decorator} on ${name}: ${error.message}`, { cause: error });
    }
  }
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

/** The plans of the methods of a class, without those that are overridden. */
export function leaderPlansOf(prototype: object): LeaderPlan[] {
  const methods = [...methodsOf(prototype).values()];
  return methods.flatMap(([{ method }]) => (method && leaderPlanOf(method)) ?? []);
}
