import type { LockBackend } from '../backend/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../../api/errors.js';
import type { Lease } from '../lease/lease.js';
import { parseOwner } from '../../api/holder.js';
import type { Waiter } from './waiter.js';

/** What was last heard of a lock that others hold. */
export interface Sighting {
  /** The owner value of the holder; undefined when nobody had the majority. */
  owner?: string;
  /** When the holder's lease ends, if that is known. */
  endsAt?: number;
  /** When it was asked for again; undefined: it was answered since. */
  askedAt?: number;
}

/** What a process knows of a lock that a call did not get. */
export interface Known {
  key: string;
  /** What it holds itself. */
  lease?: Lease;
  sighting?: Sighting;
  now: number;
  backend: Pick<LockBackend, 'problems'>;
}

/** An answer may take so long before what was last heard counts as out of date. */
const ANSWER_DUE_MS = 200;

/** Whoever waited in vain is told what is known: who holds the lock, or that Redis owes an answer. */
export function inVain(waiter: Waiter, known: Known): LockContendedError | LockUnavailableError {
  const { key, lease, sighting, now } = known;
  const unansweredMs = sighting ? now - (sighting.askedAt ?? now) : waiter.waitedMs;
  if (lease || (sighting ? unansweredMs < ANSWER_DUE_MS : waiter.triesOnce)) return contended(waiter, known);
  const silence = `no answer for ${Math.round(unansweredMs)} ms, and waitMs is over`;
  const problems = known.backend.problems(silence);
  const causes = problems.length > 0 ? problems : [new NodeError('Redis', silence)];
  return LockUnavailableError.from('acquired', key, causes);
}

/** @param maxWaiters when it may not even wait */
export function contended({ waitedMs }: Waiter, known: Known, maxWaiters?: number): LockContendedError {
  const { key, lease, now } = known;
  if (lease) {
    return new LockContendedError(key, waitedMs, parseOwner(lease.grant.owner), lease.remainingMs, maxWaiters);
  }
  const { owner, endsAt } = known.sighting ?? {};
  const holder = owner === undefined ? undefined : parseOwner(owner);
  const remainingMs = endsAt === undefined ? undefined : Math.max(0, endsAt - now);
  return new LockContendedError(key, waitedMs, holder, remainingMs, maxWaiters);
}

/** Nothing was left of a lease when its grant was answered. */
export function tooLate(key: string, ttlMs: number, tookMs: number): LockUnavailableError {
  const cause = new NodeError(
    'Redis',
    `its answer took ${Math.round(tookMs)} ms, and the lease only runs for ${ttlMs} ms`,
    'Raise ttlMs, or see why the answer took so long.',
  );
  return LockUnavailableError.from('acquired', key, [cause]);
}
