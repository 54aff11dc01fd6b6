import type { LockServiceOptions } from '../../api/options.js';
import { checkMargin, checkTransactions, LEASE_CHECKS, type Policies } from './call-options.js';
import { checked, count, DAY_MS, milliseconds, oneOf, unfit, type Check } from './checks.js';
import { checkPolicies, resolvePolicies } from './policies.js';

/** The name of the registration without a name. */
export const DEFAULT_REGISTRATION = 'default';

/** Options of a service with every default filled in and every bound checked. */
export interface ResolvedServiceOptions
  extends
    Required<Omit<LockServiceOptions, 'insideTransaction' | 'scope' | 'telemetry' | 'policies'>>,
    Pick<LockServiceOptions, 'scope' | 'telemetry'> {
  policies: Policies;
  /** Undefined: transactions are not detected. */
  insideTransaction?: () => boolean;
}

const DEFAULTS = {
  ttlMs: 30_000,
  waitMs: 10_000,
  watchdog: true,
  reentrant: true,
  onTransaction: 'warn',
  onLost: 'reject',
  marginMs: 0,
  fair: false,
  maxWaiters: 10_000,
  cohortMs: 100,
  lockOrder: 'off',
  lazyConnect: false,
  connectTimeoutMs: 5_000,
  shutdownTimeoutMs: 10_000,
} as const satisfies LockServiceOptions;

/** The options that every registration has, whatever keeps its locks. */
export const SERVICE_CHECKS: Readonly<Record<keyof LockServiceOptions, Check>> = {
  ...LEASE_CHECKS,
  marginMs: milliseconds(0, DAY_MS),
  fair: oneOf(true, false),
  maxWaiters: count(1, 1_000_000),
  cohortMs: milliseconds(0, 60_000),
  lockOrder: oneOf('off', 'warn', 'throw'),
  scope: (name, value) => {
    if (typeof value !== 'function') throw unfit(name, value, 'a function that returns a string, or null for none');
  },
  policies: checkPolicies,
  insideTransaction: (name, value) => {
    if (typeof value !== 'function') throw unfit(name, value, 'a function that returns true or false');
  },
  telemetry: (name, value) => {
    const isOne = typeof value === 'object' && value !== null && 'open' in value && typeof value.open === 'function';
    if (!isOne) throw unfit(name, value, 'what otelLocks() of nest-redis-lock/otel returns');
  },
  lazyConnect: oneOf(true, false),
  connectTimeoutMs: milliseconds(10, 600_000),
  shutdownTimeoutMs: milliseconds(0, 600_000),
};

/**
 * Checks the options of a service and fills in their defaults; ignores those of its store.
 * @throws LockOptionsError for a value out of bounds
 */
export function resolveServiceOptions(options: LockServiceOptions): ResolvedServiceOptions {
  const { policies, ...given } = checked(options, SERVICE_CHECKS) as LockServiceOptions;
  const resolved = { ...DEFAULTS, ...given };
  checkMargin(resolved.ttlMs, resolved.marginMs);
  checkTransactions(resolved, resolved);
  return { ...resolved, policies: resolvePolicies(policies ?? {}, resolved) };
}
