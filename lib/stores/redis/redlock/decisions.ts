import type { NodeError } from '../../../api/errors.js';
import type { AcquireOutcome, ExtendOutcome, ReleaseOutcome, Unavailable } from '../../../core/backend/lock-backend.js';
import { isFailed, type Answer as NodeAnswer, type Failed } from '../../node/server.backend.js';
import type { Vote } from '../node/lock-scripts.js';
import type { RedisNode } from '../node/redis-node.js';

/**
 * The decisions of a Redlock, as functions of the nodes' answers alone: the model check in test/model explores these very
 * functions. Answers are listed by node, undefined where there is none yet; `open` is the number of those.
 */
type Answers<Answer> = readonly (Answer | undefined)[];

/** A question to several nodes, and what has come of it. */
export interface Tally<Answer> {
  readonly answers: Answers<Answer>;
  readonly open: number;
}

/** The answers of several nodes to one question, as they come in. */
export class Poll<Answer> implements Tally<Answer> {
  readonly answers: (Answer | undefined)[] = [];
  readonly #listeners: ((answer: Answer, node: number) => void)[] = [];

  /** @param open how many answers are still to come: at first one of each node */
  constructor(public open: number) {
    for (let node = 0; node < open; node++) this.answers.push(undefined);
  }

  /** Takes the answer of a node, by its index: its only one. */
  readonly take = (answer: Answer, node: number): void => {
    this.answers[node] = answer;
    this.open--;
    // A listener that is added meanwhile gets this answer from `each`.
    const { length } = this.#listeners;
    for (let index = 0; index < length; index++) this.#listeners[index]!(answer, node);
  };

  /**
   * Decides as soon as the answers allow it, without waiting for the rest.
   * @param decide called after each answer with those that are in and how many are open; must decide when none is open
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

  /** Calls the listener with each answer: with those that are in at once, with the others as they come. */
  each(listener: (answer: Answer, node: number) => void): void {
    this.answers.forEach((answer, node) => {
      if (answer !== undefined) listener(answer, node);
    });
    this.#listeners.push(listener);
  }
}

/** The answer of a node that was to raise its counter. */
export type Raise = Awaited<ReturnType<RedisNode['raiseFence']>>;
type Granted = Extract<Vote, { status: 'granted' }>;
type NotAcquired = Extract<AcquireOutcome, { status: 'contended' }> | Unavailable;

/** A majority voted for the token, or has recorded it. */
type Issued = { status: 'issued'; fencingToken: number };

/** Either the token may be issued, or the lock is refused. */
export type Issue = Issued | NotAcquired;

/** The token has to be made known to a majority before it is issued: by raising the counters of these nodes. */
export type WriteBack = { status: 'write-back'; fencingToken: number; to: number[] };

/** A write-back that has begun, with the answers of the nodes that it went to. */
export interface BegunWriteBack {
  fencingToken: number;
  raises: Tally<Raise>;
}

/** The value that at least `quorum` of the nodes gave. */
export function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}

export function causesOf(faults: readonly Failed[]): NodeError[] {
  return faults.flatMap(({ causes }) => causes);
}

/** The smallest majority. */
export function quorumOf(nodes: number): number {
  return Math.floor(nodes / 2) + 1;
}

/**
 * Decides an attempt by all answers that are in: by the votes, and by the answers to the write-back once it has begun. Either
 * may issue a token, so the attempt is refused only when neither can any more.
 * @param queued whether a refused attempt has a place in the queue
 * @param writeBack undefined until one has begun: an attempt begins one at most
 * @returns undefined while the open answers still matter
 */
export function tallyAttempt(
  { answers, open }: Tally<Vote>,
  quorum: number,
  queued: boolean,
  writeBack?: BegunWriteBack,
): Issue | WriteBack | undefined {
  const tally = tallyVotes(answers, open, quorum, queued);
  if (tally?.status !== 'write-back' || !writeBack) return tally;
  const outcome = tallyWriteBack(writeBack, quorum);
  return outcome?.status === 'issued' || !mayAgree(answers, open, quorum) ? outcome : undefined;
}

/**
 * A token that a majority voted for is issued: nearly always all nodes vote for the one that was proposed to them. A node
 * that voted for another does not count.
 * @returns undefined while the open votes still matter
 */
export function tallyVotes(
  votes: Answers<Vote>,
  open: number,
  quorum: number,
  queued: boolean,
): Issue | WriteBack | undefined {
  if (areTooFew(votes, open, quorum)) return undefined;
  const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
  if (tokens.length >= quorum) {
    const fencingToken = agreed(tokens, quorum);
    if (fencingToken !== undefined) return { status: 'issued', fencingToken };
    // Nodes whose votes are open are asked, too: their connection keeps the order, and the script checks the owner there.
    const to = [...votes.keys()].filter((node) => votes[node] === undefined || isGranted(votes[node]));
    return { status: 'write-back', fencingToken: Math.max(...tokens), to };
  }
  const lost = tokens.length + open < quorum && (open === 0 || knowsWhy(votes, open, quorum));
  return lost ? notAcquired(votes, quorum, queued) : undefined;
}

/**
 * A node that has recorded the token counts only if it had a part in choosing it. One that granted later may have voted
 * for a larger one, after that of another holder: its counter is at or above the token, but the token is not above that
 * one's. The script of the node sees to that, too, as long as the node knows its own vote.
 * @param vote of the same node on the same acquisition
 */
export function acknowledged(raise: Raise, vote: Vote, fencingToken: number): Raise {
  const isBelow = isGranted(vote) && vote.fencingToken <= fencingToken;
  return raise.status === 'raised' && !isBelow ? { status: 'gone' } : raise;
}

/** @returns undefined while the open answers still matter */
export function tallyWriteBack({ fencingToken, raises }: BegunWriteBack, quorum: number): Issue | undefined {
  const { answers, open } = raises;
  const raised = answers.filter((answer) => answer?.status === 'raised').length;
  if (raised >= quorum) return { status: 'issued', fencingToken };
  if (raised + open >= quorum) return undefined;
  const faults = answers.filter(isFailed);
  return faults.length > 0 ? unavailable(faults) : { status: 'contended', queued: false }; // its keys were deleted or ran out meanwhile
}

/**
 * Extended means that a majority still had it.
 * @returns undefined while the open answers still matter
 */
export function tallyExtension(
  answers: Answers<NodeAnswer<ExtendOutcome>>,
  open: number,
  quorum: number,
): ExtendOutcome | undefined {
  if (areTooFew(answers, open, quorum)) return undefined;
  const extensions = answers.filter((answer) => answer?.status === 'extended');
  const extended = extensions.length;
  if (extended >= quorum) return { status: 'extended', sentAt: Math.min(...extensions.map(({ sentAt }) => sentAt)) };
  const faults = answers.filter(isFailed);
  // Nodes that did not answer may still have it: it is lost for certain only if even they would not make a majority.
  if (extended + faults.length + open < quorum) {
    const isStolen = answers.some((answer) => answer?.status === 'lost' && answer.reason === 'stolen');
    return { status: 'lost', reason: isStolen ? 'stolen' : 'expired' };
  }
  return open > 0 ? undefined : unavailable(faults);
}

/** @returns undefined while the open answers still matter */
export function tallyRelease(
  answers: Answers<NodeAnswer<ReleaseOutcome>>,
  open: number,
  quorum: number,
): ReleaseOutcome | undefined {
  if (areTooFew(answers, open, quorum)) return undefined;
  const released = answers.filter((answer) => answer?.status === 'released').length;
  if (released >= quorum) return { status: 'released' };
  const faults = answers.filter(isFailed);
  if (released + faults.length + open < quorum) return { status: 'gone' };
  return open > 0 ? undefined : unavailable(faults);
}

function unavailable(faults: readonly Failed[]): Unavailable {
  return { status: 'unavailable', causes: causesOf(faults) };
}

/** Whether nothing can follow from the answers yet: neither a majority agrees, nor is one out of reach. */
function areTooFew(answers: Answers<unknown>, open: number, quorum: number): boolean {
  const given = answers.length - open;
  return given < quorum && given <= answers.length - quorum;
}

function isGranted(vote: Vote | undefined): vote is Granted {
  return vote?.status === 'granted';
}

/** Whether a majority may yet vote for one token. */
function mayAgree(votes: Answers<Vote>, open: number, quorum: number): boolean {
  const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
  return agreed(tokens, quorum - open) !== undefined;
}

/** Whether the open votes can no longer change what a refusal says: which nodes failed, or who is the holder. */
function knowsWhy(votes: Answers<Vote>, open: number, quorum: number): boolean {
  if (answered(votes) < quorum) return false;
  const owners = votes.filter((vote) => vote?.status === 'refused').map((vote) => vote.owner);
  return agreed(owners, quorum) !== undefined || agreed(owners, quorum - open) === undefined;
}

/** How many nodes answered, or still may. */
function answered(votes: Answers<Vote>): number {
  return votes.length - votes.filter(isFailed).length;
}

/** The refusal that follows from the votes: contended if a majority answered, as then others are in the way, not the network. */
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
