import { Logger } from '@nestjs/common';
import { LockLostError, LockOptionsError } from '../../api/errors.js';
import type { Leadership } from '../../api/leader.js';
import { printable, quoted } from '../../api/printable.js';
import { withDefaults } from '../../core/options/option-rows.js';
import type { LockService } from '../../core/service/lock.service.js';
import type { Host } from '../injection/decorated-methods.js';
import { injectedService, serviceIn } from '../injection/injected-service.js';
import { leaderPlanOf, type LeaderPlan } from './leader.decorators.js';

/** A method with an election, and the instance to call it on. */
export interface LeaderMethod {
  readonly plan: LeaderPlan;
  readonly instance: object;
  readonly service: LockService;
}

/**
 * Finds the methods with `@LeaderOnly` and `@WhileLeader`, except in lazy modules: there, the first call of a method with
 * `@LeaderOnly` begins its election.
 * @throws LockOptionsError
 */
export function leaderMethodsIn(hosts: readonly Host[]): LeaderMethod[] {
  const found = hosts.flatMap(leaderMethods);
  // An instance with two injection tokens, because of useExisting, is found twice.
  const isFirst = ({ plan, instance }: LeaderMethod, index: number) =>
    found.findIndex((each) => each.plan === plan && each.instance === instance) === index;
  const methods = found.filter(isFirst);
  for (const method of methods) refuseClash(method, methods);
  return methods;
}

export function beginElection({ plan, instance, service }: LeaderMethod): void {
  if (plan.decorator === '@LeaderOnly') service.leader(plan.key, plan.options);
  else service.whileLeader(plan.key, plan.options, (leadership) => call(plan, instance, leadership));
}

/** @throws LockOptionsError */
function leaderMethods({ module, wrapper, methods }: Host): LeaderMethod[] {
  const plans = methods.flatMap(([{ method }]) => (method && leaderPlanOf(method)) ?? []);
  return plans.map((plan) => {
    const where = `${plan.name} in ${module.name} is ${plan.decorator}`;
    if (!wrapper.isDependencyTreeStatic()) {
      throw new LockOptionsError(
        `${where}, but its class is request-scoped, or injects a request-scoped provider: leadership does not belong to a ` +
          'request. Move the method to a class of the default scope.',
      );
    }
    if (wrapper.isTransient) {
      throw new LockOptionsError(
        `${where}, but its class is transient: Nest creates an instance for each class that injects it. Move the ` +
          'method to a class of the default scope.',
      );
    }
    const instance = wrapper.instance as object;
    return { plan, instance, service: injectedService(serviceIn(instance, plan.registration, where), plan.name) };
  });
}

/**
 * Checks for different options of one election. This happens before any election begins, so that an application that does not
 * start never leads.
 * @throws LockOptionsError if another method has the same election with other options
 */
function refuseClash({ plan, service }: LeaderMethod, methods: readonly LeaderMethod[]): void {
  const ttlOf = ({ options }: LeaderPlan) => withDefaults('leader', options).ttlMs;
  const isClash = (each: LeaderMethod) =>
    each.service === service && each.plan.key === plan.key && ttlOf(each.plan) !== ttlOf(plan);
  const other = methods.find(isClash)?.plan;
  if (!other) return;
  throw new LockOptionsError(
    `${plan.name} and ${other.name} take part in the election of ${quoted(plan.key)} with ttlMs ${ttlOf(plan)} and ` +
      `${ttlOf(other)}. There is one election for each registration and key: give it the same options everywhere.`,
  );
}

/** Calls a method for one term. @throws the error of the method, which ends the term */
async function call({ name, property, key }: LeaderPlan, instance: object, leadership: Leadership): Promise<void> {
  try {
    await (instance as Record<PropertyKey, (leadership: Leadership) => unknown>)[property]!(leadership);
  } catch (error) {
    const { signal } = leadership;
    if (!signal.aborted || !isAbortOf(error, signal)) {
      const what = signal.aborted
        ? ' after its term had ended'
        : '; this process resigns, and campaigns again after a pause';
      new Logger('WhileLeader').error(
        `${name} failed as the leader of ${quoted(key)}${what}: ${printable(String(error))}`,
        error instanceof Error ? error.stack : undefined,
      );
    }
    throw error;
  }
}

/** Whether the error only reports that the signal ended the work. */
function isAbortOf(error: unknown, signal: AbortSignal): boolean {
  return (
    error === signal.reason || error instanceof LockLostError || (error instanceof Error && error.name === 'AbortError')
  );
}
