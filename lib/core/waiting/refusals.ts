import { keptUntil } from '../backend/kept-until.js';
import type { LockBackend } from '../backend/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../../api/errors.js';
import type { Lease } from '../lease/lease.js';
import { parseOwner } from '../../api/holder.js';

/** The last answer about a lock that others hold. */
export interface HolderSeen {
  /** The owner value of the holder; undefined after a split vote. */
  owner?: string;
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
  backend: Pick<LockBackend, 'problems'>;
}

/** The call that is refused. */
interface Refused {
  /** When it joined the queue of the key. */
  readonly startedAt: number;
  readonly waitedMs: number;
  /** Whether it was refused before, a moment ago, and now waits. */
  readonly wasRefused: boolean;
  /** The keys that it holds meanwhile. */
  readonly holding?: readonly string[];
}

/** How long an answer may take before the last one counts as out of date, in milliseconds. */
const ANSWER_DUE_MS = 200;

/** The refusal of a call whose time is over: it names the holder, or says that the store owes an answer. */
export function timedOut(call: Refused, known: Knowledge): LockContendedError | LockUnavailableError {
  const { key, lease, seen, now } = known;
  const unansweredMs = now - (seen ? (seen.askedAt ?? now) : call.startedAt);
  const isKnownHeld = seen !== undefined || call.wasRefused;
  if (lease || (isKnownHeld && unansweredMs < ANSWER_DUE_MS)) return contended(call, known);
  const silence = `no answer for ${Math.round(unansweredMs)} ms, and waitMs is over`;
  const problems = known.backend.problems(silence);
  const causes = problems.length > 0 ? problems : [new NodeError('the store', silence)];
  return LockUnavailableError.from('acquired', key, causes);
}

/** The refusal of a call whose lock is held by others. @param maxWaiters given when the call may not even wait */
export function contended({ waitedMs, holding }: Refused, known: Knowledge, maxWaiters?: number): LockContendedError {
  const { key, lease, seen, now } = known;
  if (lease) {
    const holder = parseOwner(lease.grant.owner);
    return new LockContendedError(key, waitedMs, { holder, remainingMs: lease.remainingMs, maxWaiters, holding });
  }
  const { owner, endsAt, isKept } = seen ?? {};
  const holder = owner === undefined ? undefined : parseOwner(owner);
  const remainingMs = endsAt === undefined ? undefined : Math.max(0, endsAt - now);
  const contention = { holder, remainingMs, keptUntil: keptUntil({ isKept, remainingMs }), maxWaiters, holding };
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
