import type { Hold } from './history.js';
import type { Lock, LockHandle } from './library.js';

/** How a turn wants its lock. */
export interface Wish {
  readonly ttlMs: number;
  readonly waitMs?: number;
  readonly watchdog?: boolean;
  readonly holdMs?: number;
  readonly maxHoldMs?: number;
  readonly mode?: 'shared';
  /** It wants permits. */
  readonly permits?: number;
  readonly limit?: number;
  readonly signal?: AbortSignal;
  readonly note?: string;
}

/** A lock, or permits. */
export type Held = Pick<Lock, 'key' | 'owner' | 'signal' | 'isHeld' | 'remainingMs' | 'release'>;

/** Its calls mostly want permits. */
export const CROWDED_KEY = 'crowded';
/** How many permits calls want, and the limits that they name. */
const PERMITS = [1, 2, 3];
const LIMITS = [5, 5, 5, 3];
/** For calls that pass the lock on to each other: all of them want the same. */
export const ONE_PERMIT = { permits: 1, limit: Math.max(...LIMITS) };
/** The share of turns that may be limited. */
const LIMITED = 0.15;
/** The largest `maxHoldMs`, in milliseconds: much work takes longer. */
const MAX_HOLD_MS = 20;

type Random = () => number;

/** Some may hold their lock only for a short time. */
export function perhapsLimited(wish: Wish, random: Random): Wish {
  return random() < LIMITED ? { ...wish, maxHoldMs: 1 + Math.floor(random() * MAX_HOLD_MS) } : wish;
}

/** A lock that is held together with others is not kept after the work. */
export function shared({ holdMs: _holdMs, ...wish }: Wish): Wish {
  return { ...wish, mode: 'shared' };
}

export function ofPermits({ holdMs: _holdMs, ...wish }: Wish, random: Random): Wish {
  const pick = (list: readonly number[]): number => list[Math.floor(random() * list.length)]!;
  return { ...wish, permits: pick(PERMITS), limit: pick(LIMITS) };
}

/** Undefined for an exclusive lock. */
export function holdOf({ mode, permits = 1, limit }: Wish): Hold | undefined {
  return limit === undefined ? mode && { mode } : { mode: 'permits', permits, limit };
}

/** Then it has neither a mode nor `holdMs`, which permits do not support. */
export function wantsPermits<W extends Wish>(
  wish: W,
): wish is W & { limit: number; mode?: undefined; holdMs?: undefined } {
  return wish.limit !== undefined;
}

/** Permits have none. */
export function tokenOf(lock: Held): number | undefined {
  return (lock as LockHandle).lease.fencingToken;
}

/** How long its lease runs from now on, in milliseconds, even if its turn may not hold it for so long. */
export function leaseLeftMs(lock: Held): number {
  const { deadline, endsAt } = (lock as LockHandle).lease;
  return lock.remainingMs + deadline - endsAt;
}

export function hasOverstayed(lock: Held): boolean {
  return (lock as LockHandle).lease.lostReason === 'overstayed';
}
