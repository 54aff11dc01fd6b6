import type { Holder } from './lock-backend.js';

/**
 * When a lock that is kept is free again, by the wall clock of this process. Undefined for one that is held, or whose end is not
 * known: its ttl may have been taken away by hand.
 */
export function keptUntil({ isKept, remainingMs }: Partial<Holder>): Date | undefined {
  return isKept && Number.isFinite(remainingMs) ? new Date(Date.now() + remainingMs!) : undefined;
}
