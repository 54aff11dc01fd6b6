import type { Holding } from '../backends/lock-backend.js';
import type { LockInfo } from '../lock.js';
import { parseOwner } from '../owner.js';

/** What `inspect` tells of a lock that is held. */
export function lockInfo(key: string, holding: Holding, waiters: number): LockInfo {
  const { owner, remainingMs, fencingToken, heldForMs } = holding;
  const since = heldForMs === undefined ? undefined : new Date(Date.now() - heldForMs);
  return { key, holder: parseOwner(owner), since, remainingMs: Math.round(remainingMs), fencingToken, waiters };
}
