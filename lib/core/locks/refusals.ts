import { keptUntil, type Hold, type LockBackend } from '../backend/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../../api/errors.js';
import { heldAs, type Lease } from './lease.js';
import { parseOwner } from '../../api/holder.js';

/** The last answer about a lock that others hold. */
export interface HolderSeen {
  /** The owner value of the holder; undefined after a tie, which nobody won. */
  owner?: string;
  /** How many hold it beside that one, if that is known. */
  others?: number;
  /** When the holder's lease ends, if that is known. */
  endsAt?: number;
  /** The lock is kept: the holder's work has ended. */
  isKept?: boolean;
  /** When the lock was asked for again; undefined once that is answered. */
  askedAt?: number;
}

/** The knowledge of a key's queue when it refuses a call. */
export interface Knowledge {
  key: string;
  /** A lease that this process holds. */
  lease?: Lease;
  seen?: HolderSeen;
  now: number;
  backend: Pick<LockBackend, 'problems' | 'unreleased'>;
}

/** The call that is refused. */
interface Refused {
  /** When it joined the queue of the key. */
  readonly startedAt: number;
  readonly waitedMs: number;
  readonly request: { readonly waitMs: number };
  /** Whether it was refused before, a moment ago, and now waits. */
  readonly wasRefused: boolean;
  /** The keys that it holds meanwhile. */
  readonly holding?: readonly string[];
  /** How it wants to hold the lock. @default exclusive */
  readonly hold?: Hold;
}

/** How long an answer may take before the last one counts as out of date, in milliseconds. */
const ANSWER_DUE_MS = 200;

/** The refusal of a call whose time is over: it names the holder, or says that the store owes an answer. */
export function timedOut(call: Refused, known: Knowledge): LockContendedError | LockUnavailableError {
  const { key, lease, seen, now } = known;
  const unansweredMs = now - (seen ? (seen.askedAt ?? now) : call.startedAt);
  const isKnownHeld = seen !== undefined || call.wasRefused;
  if (lease || (isKnownHeld && unansweredMs < ANSWER_DUE_MS)) return contended(call, known);
  return LockUnavailableError.from('acquired', key, unansweredCauses(key, unansweredMs, call.request, known.backend));
}

/** The refusal of a call whose lock was granted, and lost again before the call could go on with it. @param what had yet to happen */
export function lostBefore(
  what: string,
  { key, lostReason }: Lease,
  done: 'acquired' | 'kept' = 'acquired',
  advice = 'Try again.',
): LockUnavailableError {
  const problem = `the lock was lost again before ${what} (${lostReason})`;
  return LockUnavailableError.from(done, key, [new NodeError('the store', problem, advice, true)]);
}

/** The refusal of a call that has its lock, but whose time is over before the store has said that it keeps that for `holdMs`. */
export function notKept(
  key: string,
  unansweredMs: number,
  request: Refused['request'],
  backend: Knowledge['backend'],
): LockUnavailableError {
  return LockUnavailableError.from('kept', key, unansweredCauses(key, unansweredMs, request, backend));
}

/** The problems of a store that owes an answer when the time of a call is over. */
function unansweredCauses(
  key: string,
  ms: number,
  { waitMs }: Refused['request'],
  backend: Knowledge['backend'],
): readonly NodeError[] {
  const silence = `no answer for ${Math.round(ms)} ms${waitMs > 0 ? ', and waitMs is over' : ''}`;
  const problems = backend.problems(silence, key);
  return problems.length > 0 ? problems : [new NodeError('the store', silence)];
}

/** The refusal of a call whose lock is held by others. @param maxWaiters given when the call may not even wait */
export function contended(
  { waitedMs, holding, hold }: Refused,
  known: Knowledge,
  maxWaiters?: number,
): LockContendedError {
  const { key, lease, seen, now } = known;
  const call = { maxWaiters, permits: heldAs(hold).permits, holding };
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

/** Nothing was left of a lease when its grant was answered. */
export function answeredTooLate(key: string, ttlMs: number, tookMs: number): LockUnavailableError {
  const cause = new NodeError(
    'the store',
    `its answer took ${Math.round(tookMs)} ms, but the lease is only ${ttlMs} ms long`,
    'Raise ttlMs, or find out why the answer took so long.',
  );
  return LockUnavailableError.from('acquired', key, [cause]);
}

/** The application closes: refuses a call that would wait, or that begins. */
export function closed(key: string): LockUnavailableError {
  return new LockUnavailableError('The application is closing: locks are no longer granted.', key);
}
