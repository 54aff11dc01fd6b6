import type { LeaderOptions } from '../../api/leader.js';
import type { Bounds } from '../backend/lock-backend.js';
import { checkTtl, LEASE_CHECKS } from './call-options.js';
import { checked, refuseUnknown } from './checks.js';

const DEFAULTS = { ttlMs: 15_000 } as const satisfies Required<LeaderOptions>;

/**
 * Checks the options of an election and fills in their defaults.
 * @param marginMs that of the service
 * @param bounds those of its store
 * @throws LockOptionsError for an unknown name or a value out of bounds
 */
export function resolveLeaderOptions(
  options: LeaderOptions,
  marginMs: number,
  bounds: Bounds,
): Required<LeaderOptions> {
  checkLeaderOptions(options);
  const { ttlMs = Math.min(DEFAULTS.ttlMs, bounds.longestMs?.ms ?? Infinity) } = options;
  const resolved = withLeaderDefaults({ ...options, ttlMs });
  checkTtl(resolved.ttlMs, marginMs, bounds);
  return resolved;
}

/** @throws LockOptionsError for a value out of bounds */
export function withLeaderDefaults(options: LeaderOptions): Required<LeaderOptions> {
  return { ...DEFAULTS, ...checked(options, LEADER_CHECKS) };
}

/** @throws LockOptionsError for an unknown name, or a value that is out of bounds for every service */
export function checkLeaderOptions(options: LeaderOptions, also: readonly string[] = []): void {
  refuseUnknown(options, [...Object.keys(LEADER_CHECKS), ...also]);
  checked(options, LEADER_CHECKS);
}

const LEADER_CHECKS = { ttlMs: LEASE_CHECKS.ttlMs };
