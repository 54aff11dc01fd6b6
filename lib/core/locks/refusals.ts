import { keptUntil, type LockBackend } from '../backend/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../../api/errors.js';
import { heldAs, type Lease } from './lease.js';
import { parseOwner } from '../../api/holder.js';
import type { Waiter, WaitRequest } from './waiter.js';

/** The last answer about a lock that others hold. */
export interface HolderSeen {
  /** The owner value of the holder; undefined if nobody won. */
  owner?: string;
  /** How many others hold it too, if the store says so. */
  others?: number;
  /** When the holder's lease ends, if the store says so. */
  endsAt?: number;
  /** The store keeps the lock although the holder's work has ended. */
  isKept?: boolean;
  /** When this process asked again; undefined once that is answered. */
  askedAt?: number;
}

/** What a line knows when it refuses a call. */
export interface Knowledge {
  key: string;
  /** A lease that this process holds. */
  lease?: Lease;
  seen?: HolderSeen;
  now: number;
  backend: LockBackend;
}

/** If an answer takes longer than this, the answer before it counts as outdated, in milliseconds. */
const ANSWER_DUE_MS = 200;

/** The refusal of a call whose time is over. It names the holder, or says that the store has not answered. */
export function timedOut(call: Waiter, known: Knowledge): LockContendedError | LockUnavailableError {
  const { key, lease, seen, now } = known;
  const unansweredMs = now - (seen ? (seen.askedAt ?? now) : call.startedAt);
  const isKnownHeld = seen !== undefined || (call.hasWaited && !call.request.isProbe);
  if (lease || (isKnownHeld && unansweredMs < ANSWER_DUE_MS)) return contended(call, known);
  return LockUnavailableError.from('acquired', key, unansweredCauses(key, unansweredMs, call.request, known.backend));
}

/** The refusal of a call whose lock was granted, and lost before the call could use it. @param what the clause after "lost before" */
export function lostBefore(
  what: string,
  { key, lostReason }: Lease,
  done: 'acquired' | 'kept' = 'acquired',
  advice = 'Try again.',
): LockUnavailableError {
  const problem = `the lock was lost again before ${what} (${lostReason})`;
  return LockUnavailableError.from(done, key, [new NodeError('the store', problem, advice, true)]);
}

/** The refusal of a call that has its lock, but did not get the confirmation of `holdMs` in time. */
export function notKept(
  key: string,
  unansweredMs: number,
  request: WaitRequest,
  backend: LockBackend,
): LockUnavailableError {
  return LockUnavailableError.from('kept', key, unansweredCauses(key, unansweredMs, request, backend));
}

/** Why the store has not answered when the time of a call is over. */
function unansweredCauses(
  key: string,
  ms: number,
  { waitMs }: WaitRequest,
  backend: LockBackend,
): readonly NodeError[] {
  const silence = `no answer for ${Math.round(ms)} ms${waitMs > 0 ? ', and waitMs has passed' : ''}`;
  const problems = backend.problems(silence, key);
  return problems.length > 0 ? problems : [new NodeError('the store', silence)];
}

/** The refusal of a call whose lock is held by others. @param maxWaiters given when the call may not even wait */
export function contended(
  { waitedMs, request, hold }: Waiter,
  known: Knowledge,
  maxWaiters?: number,
): LockContendedError {
  const { key, lease, seen, now } = known;
  const call = { maxWaiters, permits: heldAs(hold).permits, holding: request.holding };
  if (lease) {
    const holder = parseOwner(lease.grant.owner);
    const remainingMs = lease.checkRemainingMs();
    return new LockContendedError(key, waitedMs, { holder, remainingMs, isOwn: true, ...call });
  }
  const { owner, others, endsAt, isKept } = seen ?? {};
  const holder = owner === undefined ? undefined : parseOwner(owner);
  const remainingMs = endsAt === undefined ? undefined : Math.max(0, endsAt - now);
  const unreleased = owner === undefined ? undefined : known.backend.unreleased?.(owner);
  const contention = {
    holder,
    others,
    remainingMs,
    keptUntil: keptUntil({ isKept, remainingMs }),
    unreleased,
    ...call,
  };
  return new LockContendedError(key, waitedMs, contention);
}

/** The refusal of a call whose grant arrived after its lease had ended. */
export function answeredTooLate(key: string, ttlMs: number, tookMs: number): LockUnavailableError {
  const cause = new NodeError(
    'the store',
    `its answer took ${Math.round(tookMs)} ms, but the lease is only ${ttlMs} ms long`,
    'Raise ttlMs, or find out why the answer took so long.',
  );
  return LockUnavailableError.from('acquired', key, [cause]);
}

/** The refusal of a call because the application closes. */
export function closed(key: string): LockUnavailableError {
  return new LockUnavailableError('The application is closing: locks are no longer granted.', key);
}
