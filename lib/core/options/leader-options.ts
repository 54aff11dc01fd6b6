import type { LeaderOptions } from '../../api/leader.js';
import type { Bounds } from '../backend/lock-backend.js';
import { checkTtl } from './call-options.js';
import { checkOptions, withDefaults } from './option-rows.js';

/**
 * Checks the options of an election and fills in their defaults.
 * @param marginMs of the service
 * @param bounds of its store
 * @throws LockOptionsError for an unknown name or a value out of bounds
 */
export function resolveLeaderOptions(
  options: LeaderOptions,
  marginMs: number,
  bounds: Bounds,
): Required<LeaderOptions> {
  checkOptions('leader', options);
  const { ttlMs: byDefault } = withDefaults('leader', options);
  const { ttlMs = Math.min(byDefault, bounds.longestMs?.ms ?? Infinity) } = options;
  checkTtl(ttlMs, marginMs, bounds);
  return { ttlMs };
}
