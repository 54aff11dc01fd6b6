import type { AcquireOutcome, ExtendOutcome, ReleaseOutcome } from '../../../core/backend/lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, Vote } from '../node/node-answers.js';
import type { RedisNode } from '../node/redis-node.js';

/**
 * The decisions of a Redlock, as functions of the nodes' answers alone: the model check in test/model explores these very
 * functions. Answers are listed by node, undefined where there is none yet; `open` is the number of those.
 */
type Answers<Answer> = readonly (Answer | undefined)[];

/** The answer of a node that was to raise its counter. */
export type Raise = Awaited<ReturnType<RedisNode['raiseFence']>>;
type Granted = Extract<Vote, { status: 'granted' }>;
type Refusal = Extract<AcquireOutcome, { status: 'contended' | 'unavailable' }>;

/** A majority is known to have a counter at or above the token. */
type Issued = { status: 'issued'; fencingToken: number };

/** Either the token may be issued, or the lock is refused. */
export type Issue = Issued | Refusal;

/** The token has to be made known to a majority before it is issued: by raising the counters of these nodes. */
export type WriteBack = { status: 'write-back'; fencingToken: number; to: number[] };

/** The smallest majority. */
export function quorumOf(nodes: number): number {
  return Math.floor(nodes / 2) + 1;
}

/**
 * @param queued whether a refused attempt has a place in the queue
 * @returns undefined while the open votes still matter
 */
export function tallyVotes(
  votes: Answers<Vote>,
  open: number,
  quorum: number,
  queued: boolean,
): Issue | WriteBack | undefined {
  const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
  if (tokens.length >= quorum) {
    const fencingToken = Math.max(...tokens);
    if (tokens.filter((token) => token === fencingToken).length >= quorum) return { status: 'issued', fencingToken };
    // Nodes whose votes are open are asked, too: their connection keeps the order, and the script checks the owner there.
    const to = [...votes.keys()].filter((node) => votes[node] === undefined || isGranted(votes[node]));
    return { status: 'write-back', fencingToken, to };
  }
  const lost = tokens.length + open < quorum && (open === 0 || knowsWhy(votes, open, quorum));
  return lost ? refusalOf(votes, quorum, queued) : undefined;
}

/**
 * A node whose counter was raised counts only if it had a part in choosing the token. One that granted later may have drawn a
 * larger number, after that of another holder: its counter is at or above the token, but the token is not above that one's.
 * @param vote of the same node on the same acquisition
 */
export function acknowledged(raise: Raise, vote: Vote, fencingToken: number): Raise {
  const isBelow = isGranted(vote) && vote.fencingToken <= fencingToken;
  return raise.status === 'raised' && !isBelow ? { status: 'gone' } : raise;
}

/** @returns undefined while the open answers still matter */
export function tallyWriteBack(
  answers: Answers<Raise>,
  open: number,
  quorum: number,
  fencingToken: number,
): Issue | undefined {
  const raised = answers.filter((answer) => answer?.status === 'raised').length;
  if (raised >= quorum) return { status: 'issued', fencingToken };
  if (raised + open >= quorum) return undefined;
  const faults = answers.filter(isFault);
  return faults.length > 0
    ? { status: 'unavailable', causes: faults.map((fault) => fault.error) }
    : { status: 'contended', queued: false }; // its keys were deleted or ran out meanwhile
}

/**
 * Extended means that a majority still had it.
 * @returns undefined while the open answers still matter
 */
export function tallyExtension(
  answers: Answers<NodeExtension>,
  open: number,
  quorum: number,
): { status: 'extended' } | Exclude<ExtendOutcome, { status: 'extended' }> | undefined {
  const count = (status: NodeExtension['status']) => answers.filter((answer) => answer?.status === status).length;
  const extended = count('extended');
  if (extended >= quorum) return { status: 'extended' };
  const faults = answers.filter(isFault);
  // Nodes that did not answer may still have it: it is lost for certain only if even they would not make a majority.
  if (extended + faults.length + open < quorum) {
    return { status: 'lost', reason: count('foreign') > 0 ? 'stolen' : 'expired' };
  }
  return open > 0 ? undefined : { status: 'unavailable', causes: faults.map((fault) => fault.error) };
}

/** @returns undefined while the open answers still matter */
export function tallyRelease(answers: Answers<NodeRelease>, open: number, quorum: number): ReleaseOutcome | undefined {
  const released = answers.filter((answer) => answer?.status === 'released').length;
  if (released >= quorum) return { status: 'released' };
  const faults = answers.filter(isFault);
  if (released + faults.length + open < quorum) return { status: 'gone' };
  return open > 0 ? undefined : { status: 'unavailable', causes: faults.map((fault) => fault.error) };
}

/** The value that at least `quorum` of the nodes gave. */
export function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}

export function isFault(answer: { status: string } | undefined): answer is Fault {
  return answer?.status === 'fault';
}

function isGranted(vote: Vote | undefined): vote is Granted {
  return vote?.status === 'granted';
}

/** Whether the open votes can no longer change what a refusal says: which nodes failed, or who is the holder. */
function knowsWhy(votes: Answers<Vote>, open: number, quorum: number): boolean {
  if (answered(votes) < quorum) return false;
  const owners = votes.filter((vote) => vote?.status === 'refused').map((vote) => vote.owner);
  return agreed(owners, quorum) !== undefined || agreed(owners, quorum - open) === undefined;
}

/** How many nodes answered, or still may. */
function answered(votes: Answers<Vote>): number {
  return votes.length - votes.filter(isFault).length;
}

/** The refusal that follows from the votes: contended if a majority answered, as then others are in the way, not the network. */
function refusalOf(votes: Answers<Vote>, quorum: number, queued: boolean): Refusal {
  if (answered(votes) < quorum) {
    return { status: 'unavailable', causes: votes.filter(isFault).map((fault) => fault.error) };
  }
  const refusals = votes.filter((vote) => vote?.status === 'refused');
  const owner = agreed(
    refusals.map((vote) => vote.owner),
    quorum,
  );
  if (owner === undefined) return { status: 'contended', queued };
  const remaining = refusals.filter((vote) => vote.owner === owner).map((vote) => vote.remainingMs);
  return { status: 'contended', owner, remainingMs: Math.max(...remaining), queued };
}
