import type { LockServiceOptions } from '../../api/options.js';
import { checkMargin, checkTransactions, type Policies } from './call-options.js';
import { withDefaults } from './option-rows.js';
import { resolvePolicies } from './policies.js';

/** The name of the registration without a name. */
export const DEFAULT_REGISTRATION = 'default';

/** The checked options of a service, with its defaults. */
export interface ResolvedServiceOptions
  extends
    Required<Omit<LockServiceOptions, 'insideTransaction' | 'scope' | 'telemetry' | 'policies'>>,
    Pick<LockServiceOptions, 'scope' | 'telemetry'> {
  policies: Policies;
  /** Undefined: transactions are not detected. */
  insideTransaction?: () => boolean;
}

/**
 * Checks the options of a service and adds the defaults. It ignores the options of the store.
 * @throws LockOptionsError for a value out of bounds
 */
export function resolveServiceOptions(options: LockServiceOptions): ResolvedServiceOptions {
  const { policies, ...resolved } = withDefaults('service', options) as ResolvedServiceOptions &
    Pick<LockServiceOptions, 'policies'>;
  checkMargin(resolved.ttlMs, resolved.marginMs);
  checkTransactions(resolved, resolved);
  return { ...resolved, policies: resolvePolicies(policies ?? {}, resolved) };
}
