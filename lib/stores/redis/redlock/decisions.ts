import type { NodeError } from '../../../api/errors.js';
import type { AcquireOutcome, ExtendOutcome, ReleaseOutcome, Unavailable } from '../../../core/backend/lock-backend.js';
import { isFailed, type Answer as NodeAnswer, type Failed } from '../../node/server.backend.js';
import type { Vote } from '../node/lock-scripts.js';
import type { RedisNode } from '../node/redis-node.js';

/**
 * The decisions of a Redlock are pure functions of the nodes' answers, so that the model check in test/model can explore them. Answers are
 * listed by node. They are undefined while a node has not answered; `open` counts these.
 */
type Answers<Answer> = readonly (Answer | undefined)[];

/** The state of a question to several nodes. */
export interface Tally<Answer> {
  readonly answers: Answers<Answer>;
  readonly open: number;
}

/** Collects the answers of several nodes to one question. */
export class Poll<Answer> implements Tally<Answer> {
  readonly answers: (Answer | undefined)[] = [];
  readonly #listeners: ((answer: Answer, node: number) => void)[] = [];

  /** @param open the number of missing answers, at first one for each node */
  constructor(public open: number) {
    for (let node = 0; node < open; node++) this.answers.push(undefined);
  }

  /** Takes the only answer of a node. @param node its index */
  readonly take = (answer: Answer, node: number): void => {
    this.answers[node] = answer;
    this.open--;
    // A listener that is added during this loop gets this answer from `each`.
    const { length } = this.#listeners;
    for (let index = 0; index < length; index++) this.#listeners[index]!(answer, node);
  };

  /**
   * Decides as soon as the answers allow it, without waiting for the rest.
   * @param decide called after each answer. It must decide when no answer is open
   * @param settled called once with the decision
   */
  decide<Decision>(
    decide: (answers: Answers<Answer>, open: number) => Decision | undefined,
    settled: (decision: Decision) => void,
  ): void {
    let isDecided = false;
    this.#listeners.push(() => {
      if (isDecided) return;
      const decision = decide(this.answers, this.open);
      if (decision === undefined) return;
      isDecided = true;
      settled(decision);
    });
  }

  /** Calls the listener with each answer: at once for the answers so far, later for the others. */
  each(listener: (answer: Answer, node: number) => void): void {
    this.answers.forEach((answer, node) => {
      if (answer !== undefined) listener(answer, node);
    });
    this.#listeners.push(listener);
  }
}

/** The answer of a node to a write-back. */
export type Raise = Awaited<ReturnType<RedisNode['raiseFence']>>;
type Granted = Extract<Vote, { status: 'granted' }>;
type NotAcquired = Extract<AcquireOutcome, { status: 'contended' }> | Unavailable;

/** A majority has voted for the token or recorded it. */
type Issued = { status: 'issued'; fencingToken: number };

/** Either the token is issued, or the lock is refused. */
export type Issue = Issued | NotAcquired;

/** A majority must record the token before it is issued, by raising the counters of these nodes. */
export type WriteBack = { status: 'write-back'; fencingToken: number; to: number[] };

/** A write-back in progress, with the answers of its nodes. */
export interface StartedWriteBack {
  fencingToken: number;
  raises: Tally<Raise>;
}

/** Returns the value that at least `quorum` nodes have in common. */
export function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}

export function causesOf(faults: readonly Failed[]): NodeError[] {
  return faults.flatMap(({ causes }) => causes);
}

/** Returns the smallest majority. */
export function quorumOf(nodes: number): number {
  return Math.floor(nodes / 2) + 1;
}

/**
 * Decides an attempt by the votes, and by the answers to the write-back once it has begun. Either can issue a token, so the attempt is
 * refused only when neither can any more.
 * @param queued whether a refused attempt has a place in the queue
 * @param writeBack undefined before it begins. An attempt has at most one
 * @returns undefined while open answers still matter
 */
export function tallyAttempt(
  { answers, open }: Tally<Vote>,
  quorum: number,
  queued: boolean,
  writeBack?: StartedWriteBack,
): Issue | WriteBack | undefined {
  const tally = tallyVotes(answers, open, quorum, queued);
  if (tally?.status !== 'write-back' || !writeBack) return tally;
  const outcome = tallyWriteBack(writeBack, quorum);
  return outcome?.status === 'issued' || !mayAgree(answers, open, quorum) ? outcome : undefined;
}

/**
 * Issues a token if a majority voted for it. Usually all nodes vote for the proposal. A node that voted for another token does not count.
 * @returns undefined while open votes still matter
 */
export function tallyVotes(
  votes: Answers<Vote>,
  open: number,
  quorum: number,
  queued: boolean,
): Issue | WriteBack | undefined {
  if (needsMoreAnswers(votes, open, quorum)) return undefined;
  const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
  if (tokens.length >= quorum) {
    const fencingToken = agreed(tokens, quorum);
    if (fencingToken !== undefined) return { status: 'issued', fencingToken };
    // Includes nodes with open votes: their connection keeps the order, and the script checks the owner.
    const to = [...votes.keys()].filter((node) => votes[node] === undefined || isGranted(votes[node]));
    return { status: 'write-back', fencingToken: Math.max(...tokens), to };
  }
  const lost = tokens.length + open < quorum && (open === 0 || isRefusalFinal(votes, open, quorum));
  return lost ? notAcquired(votes, quorum, queued) : undefined;
}

/**
 * Accepts a raised counter only if the node voted for that token or a smaller one. A node that granted later may have voted for a larger
 * token, after another holder. Then its counter is at or above the token, but the token is not above that holder's. The script of the
 * node checks this as well, as long as the node knows its own vote.
 * @param vote the vote of the same node on the same acquisition
 */
export function validatedRaise(raise: Raise, vote: Vote, fencingToken: number): Raise {
  const isBelow = isGranted(vote) && vote.fencingToken <= fencingToken;
  return raise.status === 'raised' && !isBelow ? { status: 'gone' } : raise;
}

/** @returns undefined while open answers still matter */
export function tallyWriteBack({ fencingToken, raises }: StartedWriteBack, quorum: number): Issue | undefined {
  const { answers, open } = raises;
  const raised = answers.filter((answer) => answer?.status === 'raised').length;
  if (raised >= quorum) return { status: 'issued', fencingToken };
  if (raised + open >= quorum) return undefined;
  const faults = answers.filter(isFailed);
  return faults.length > 0 ? unavailable(faults) : { status: 'contended', queued: false }; // its keys were deleted or have expired meanwhile
}

/**
 * Counts as extended if a majority still had the lock.
 * @returns undefined while open answers still matter
 */
export function tallyExtension(
  answers: Answers<NodeAnswer<ExtendOutcome>>,
  open: number,
  quorum: number,
): ExtendOutcome | undefined {
  if (needsMoreAnswers(answers, open, quorum)) return undefined;
  const extensions = answers.filter((answer) => answer?.status === 'extended');
  const extended = extensions.length;
  if (extended >= quorum) return { status: 'extended', sentAt: Math.min(...extensions.map(({ sentAt }) => sentAt)) };
  const faults = answers.filter(isFailed);
  // Nodes that did not answer may still have the lock. It is certainly lost only if even with them there is no majority.
  if (extended + faults.length + open < quorum) {
    const isStolen = answers.some((answer) => answer?.status === 'lost' && answer.reason === 'stolen');
    return { status: 'lost', reason: isStolen ? 'stolen' : 'expired' };
  }
  return open > 0 ? undefined : unavailable(faults);
}

/** @returns undefined while open answers still matter */
export function tallyRelease(
  answers: Answers<NodeAnswer<ReleaseOutcome>>,
  open: number,
  quorum: number,
): ReleaseOutcome | undefined {
  if (needsMoreAnswers(answers, open, quorum)) return undefined;
  const released = answers.filter((answer) => answer?.status === 'released').length;
  if (released >= quorum) return { status: 'released' };
  const faults = answers.filter(isFailed);
  if (released + faults.length + open < quorum) return { status: 'gone' };
  return open > 0 ? undefined : unavailable(faults);
}

function unavailable(faults: readonly Failed[]): Unavailable {
  return { status: 'unavailable', causes: causesOf(faults) };
}

/** Whether the answers cannot decide yet: no majority agrees, and a majority is still possible. */
function needsMoreAnswers(answers: Answers<unknown>, open: number, quorum: number): boolean {
  const given = answers.length - open;
  return given < quorum && given <= answers.length - quorum;
}

function isGranted(vote: Vote | undefined): vote is Granted {
  return vote?.status === 'granted';
}

/** Whether a majority may still vote for the same token. */
function mayAgree(votes: Answers<Vote>, open: number, quorum: number): boolean {
  const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
  return agreed(tokens, quorum - open) !== undefined;
}

/** Whether open votes can no longer change the content of a refusal: the failed nodes, or the holder. */
function isRefusalFinal(votes: Answers<Vote>, open: number, quorum: number): boolean {
  if (answered(votes) < quorum) return false;
  const owners = votes.filter((vote) => vote?.status === 'refused').map((vote) => vote.owner);
  return agreed(owners, quorum) !== undefined || agreed(owners, quorum - open) === undefined;
}

/** Counts the nodes that have answered or still may. */
function answered(votes: Answers<Vote>): number {
  return votes.length - votes.filter(isFailed).length;
}

/** Creates the refusal. It is `contended` if a majority answered, because then other holders are the reason, not the network. */
function notAcquired(votes: Answers<Vote>, quorum: number, queued: boolean): NotAcquired {
  if (answered(votes) < quorum) return unavailable(votes.filter(isFailed));
  const refusals = votes.filter((vote) => vote?.status === 'refused');
  const owner = agreed(
    refusals.map((vote) => vote.owner),
    quorum,
  );
  if (owner === undefined) return { status: 'contended', queued };
  const holding = refusals.filter((vote) => vote.owner === owner);
  const keeping = holding.filter((vote) => vote.isKept);
  const isKept = keeping.length >= quorum || undefined;
  const remaining = (isKept ? keeping : holding).map((vote) => vote.remainingMs);
  return { status: 'contended', owner, remainingMs: Math.max(...remaining), isKept, queued };
}
