import { keptUntil } from '../backend/kept-until.js';
import type { Holding } from '../backend/lock-backend.js';
import type { LockInfo } from '../../api/lock.js';
import { digestOf, parseOwner } from '../../api/holder.js';

/** The answer of `inspect` for a lock that is held. */
export function lockInfo(key: string, holding: Holding, waiters: number): LockInfo {
  const { owner, remainingMs, fencingToken, heldForMs } = holding;
  const since = heldForMs === undefined ? undefined : new Date(Date.now() - heldForMs);
  return {
    key,
    holder: parseOwner(owner),
    digest: digestOf(owner),
    since,
    remainingMs: Math.round(remainingMs),
    keptUntil: keptUntil(holding),
    fencingToken,
    waiters,
  };
}
