import { LockOptionsError } from '../../api/errors.js';
import type { LockPolicy } from '../../api/options.js';
import type { Bounds } from '../backend/lock-backend.js';
import {
  checkBounds,
  checkHold,
  checkMargin,
  checkTransactions,
  type CallDefaults,
  type Policies,
} from './call-options.js';
import { checked, isOptions, refuseUnknown, invalidOption } from './checks.js';
import { CHECKS } from './option-rows.js';

const CALLS_ONLY = 'It depends on the code: set it where the policy is used.';
/** Advice for options that a policy does not have. */
const OPTION_HINTS = Object.fromEntries(
  Object.keys({ ...CHECKS.withLock, ...CHECKS['@Limited'] }).map((name) => [name, CALLS_ONLY]),
);

/**
 * Checks the policies of a registration.
 * @param defaults the defaults of its calls
 * @throws LockOptionsError for an unknown option, a value out of bounds, or options that contradict each other
 */
export function resolvePolicies(given: object, defaults: Omit<CallDefaults, 'policies'>): Policies {
  const policies = new Map<string, LockPolicy>();
  for (const [name, policy] of Object.entries(given) as [string, unknown][]) {
    const place = `policies.${name}`;
    if (name === '') throw new LockOptionsError('A policy needs a name: got "" in policies.');
    if (!isOptions(policy)) throw invalidOption(place, policy, 'an object with options');
    inPlace(place, () => refuseUnknown(policy, Object.keys(CHECKS.policy), OPTION_HINTS));
    const resolved: LockPolicy = checked(policy, CHECKS.policy, `${place}.`);
    inPlace(place, () => {
      const { ttlMs = defaults.ttlMs, onTransaction = defaults.onTransaction } = resolved;
      checkMargin(ttlMs, defaults.marginMs);
      checkHold(resolved);
      checkTransactions({ onTransaction }, defaults);
    });
    policies.set(name, resolved);
  }
  return policies;
}

/** Checks policies against the bounds of the store. @throws LockOptionsError */
export function checkPolicyBounds({ policies, ttlMs: defaultTtlMs }: CallDefaults, bounds: Bounds): void {
  for (const [name, { ttlMs = defaultTtlMs, holdMs }] of policies) {
    inPlace(`policies.${name}`, () => checkBounds({ ttlMs, holdMs }, bounds));
  }
}

/** Puts the name of the policy into the error of a check. */
function inPlace(place: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof LockOptionsError)) throw error;
    throw new LockOptionsError(`In ${place}: ${error.message}`, { cause: error });
  }
}
