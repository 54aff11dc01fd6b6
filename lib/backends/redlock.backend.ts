import { LockUnavailableError, type NodeError } from '../errors.js';
import type {
  AcquireOutcome,
  Claim,
  ExtendOutcome,
  Holding,
  LockBackend,
  Place,
  ReleaseOutcome,
  Waiting,
} from './lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, RedisNode, Vote } from './redis-node.js';
import { RedlockNode } from './redlock-node.js';
import { RedlockWakes } from './redlock-wakes.js';
import { unreachable } from './single-node.backend.js';
import { countVotes } from './votes.js';

type Granted = Extract<Vote, { status: 'granted' }>;

/**
 * Redlock over independent masters (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/): a lock
 * is held when a majority of the nodes granted it. All nodes are asked at once, each with its own time limit, and the
 * votes are counted as they come in. Fencing tokens follow docs/adr/0004-fencing-tokens.md.
 */
export class RedlockBackend implements LockBackend {
  readonly handsOver = false;
  readonly #nodes: readonly RedlockNode[];
  readonly #quorum: number;
  readonly #nodeTimeoutMs: number;
  readonly #now: () => number;
  #wakes?: RedlockWakes;

  constructor(nodes: readonly RedisNode[], nodeTimeoutMs: number, now: () => number) {
    this.#nodes = nodes.map((node) => new RedlockNode(node));
    this.#quorum = Math.floor(nodes.length / 2) + 1;
    this.#nodeTimeoutMs = nodeTimeoutMs;
    this.#now = now;
  }

  /** For connections that are being made, one round of votes, and one to write the token back. */
  attemptTimeoutMs(): number {
    return 3 * this.#nodeTimeoutMs;
  }

  async acquire(claim: Claim, waiting?: Waiting): Promise<AcquireOutcome> {
    // Connections that are just being made get the time of one vote, if there is no quorum without them.
    await this.#connectedQuorum(this.#nodeTimeoutMs);
    const sentAt = this.#now();
    const queued = waiting !== undefined && this.isListening;
    // Passing on within the process would need the whole block of tokens to be known to a majority: one at a time.
    const place = waiting && { ...waiting, tokens: 1 };
    const ballots = this.#nodes.map((node) => node.acquire(claim, place));
    const votes = await countVotes(ballots, (answers, open) => {
      const granted = answers.filter(isGranted).length;
      const won = granted >= this.#quorum;
      const lost = granted + open < this.#quorum && (open === 0 || this.#knowsWhy(answers, open));
      return won || lost ? [...answers] : undefined;
    });
    const tokens = votes.filter(isGranted).map((vote) => vote.fencingToken);
    let outcome: AcquireOutcome;
    if (tokens.length >= this.#quorum) {
      const fencingToken = Math.max(...tokens);
      const known = tokens.filter((token) => token === fencingToken).length;
      const problem = known >= this.#quorum ? undefined : await this.#writeBack(claim, fencingToken, votes);
      if (problem === undefined) {
        if (waiting) this.#leaveWhereRefused(claim.key, waiting, ballots);
        return { status: 'acquired', fencingToken, lastToken: fencingToken, sentAt };
      }
      outcome = problem;
    } else {
      outcome = this.#refusal(votes, queued);
    }
    this.#undo(claim);
    return outcome;
  }

  /**
   * Held means that a majority still had it. Only then it is put back where it was absent: what was put back before
   * would be counted the next time, although another may have held the lock in between.
   */
  async extend(claim: Claim): Promise<ExtendOutcome> {
    const sentAt = this.#now();
    const ballots = this.#nodes.map((node) => node.extend(claim));
    const outcome = await countVotes<NodeExtension, ExtendOutcome>(ballots, (answers, open) => {
      const count = (status: NodeExtension['status']) => answers.filter((answer) => answer?.status === status).length;
      const extended = count('extended');
      if (extended >= this.#quorum) return { status: 'extended', sentAt };
      const faults = answers.filter(isFault);
      // Nodes that did not answer may still have it: only without them, too, it is certainly lost.
      if (extended + faults.length + open < this.#quorum) {
        return { status: 'lost', reason: count('foreign') > 0 ? 'stolen' : 'expired' };
      }
      return open > 0 ? undefined : { status: 'unavailable', causes: faults.map((fault) => fault.error) };
    });
    if (outcome.status === 'extended') this.#nodes.forEach((node, index) => void node.mend(claim, ballots[index]!));
    if (outcome.status === 'lost') this.#undo(claim);
    return outcome;
  }

  async release(claim: Claim): Promise<ReleaseOutcome> {
    const ballots = this.#nodes.map((node) => node.release(claim));
    return countVotes<NodeRelease, ReleaseOutcome>(ballots, (answers, open) => {
      const released = answers.filter((answer) => answer?.status === 'released').length;
      if (released >= this.#quorum) return { status: 'released' };
      const faults = answers.filter(isFault);
      if (released + faults.length + open < this.#quorum) return { status: 'gone' };
      return open > 0 ? undefined : { status: 'unavailable', causes: faults.map((fault) => fault.error) };
    });
  }

  /** The holder is who has a majority; minorities of a split vote are no lock. */
  leave(key: string, place: Place): void {
    for (const { node } of this.#nodes) if (node.connection.isReady) void node.leave(key, place);
  }

  get isListening(): boolean {
    return this.#nodes.filter(({ node }) => node.isListening).length >= this.#quorum;
  }

  listen(wake: (ticket?: string) => void): void {
    this.#wakes ??= new RedlockWakes(this.#quorum, wake);
    const wakes = this.#wakes;
    for (const { node } of this.#nodes) node.listen((ticket) => (ticket === undefined ? wake() : wakes.note(ticket)));
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const views = await Promise.all(this.#nodes.map(({ node }) => node.inspect(key)));
    const faults = views.filter(isFault);
    if (views.length - faults.length < this.#quorum) throw this.#unavailable('inspected', key, faults);
    const holdings = views.flatMap((view) => (view.status === 'seen' && view.holding ? [view.holding] : []));
    const owner = agreed(
      holdings.map((holding) => holding.owner),
      this.#quorum,
    );
    if (owner === undefined) return undefined;
    const majority = holdings.filter((holding) => holding.owner === owner);
    return {
      owner,
      // It is held for as long as a majority keeps it.
      remainingMs: majority.map((holding) => holding.remainingMs).sort((a, b) => b - a)[this.#quorum - 1]!,
      // A majority knows the token that was issued; the counter of a node that granted late may be at any value.
      fencingToken: agreed(
        majority.map((holding) => holding.fencingToken),
        this.#quorum,
      ),
      heldForMs: majority.find((holding) => holding.heldForMs !== undefined)?.heldForMs,
    };
  }

  async forceRelease(key: string): Promise<boolean> {
    const releases = await Promise.all(this.#nodes.map(({ node }) => node.forceRelease(key)));
    const faults = releases.filter(isFault);
    if (releases.length - faults.length < this.#quorum) throw this.#unavailable('released by force', key, faults);
    return releases.some((release) => release.status === 'released');
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    await this.#connectedQuorum(timeoutMs);
    // Nobody waits long for the rest.
    const restMs = Math.min(timeoutMs, this.#nodeTimeoutMs);
    const ballots = this.#nodes.map(({ node }) => node.connection.ready(restMs));
    const errors = (await Promise.all(ballots)).filter((error) => error !== undefined);
    if (this.#nodes.length - errors.length < this.#quorum) throw unreachable(errors, timeoutMs);
    return errors;
  }

  async close(): Promise<void> {
    this.#wakes?.close();
    await Promise.all(this.#nodes.map((node) => node.close()));
  }

  /**
   * Makes the token known to a majority before it is issued: only then no later holder can get a smaller one.
   * @returns undefined when that is done, else why the lock cannot be had
   */
  async #writeBack(
    claim: Claim,
    fencingToken: number,
    votes: readonly (Vote | undefined)[],
  ): Promise<AcquireOutcome | undefined> {
    // Votes still open are asked too: their connection keeps the order, and the script checks who owns the lock there.
    const nodes = this.#nodes.filter((_, index) => votes[index] === undefined || isGranted(votes[index]));
    const { raised, faults } = await countVotes(
      nodes.map(({ node }) => node.raiseFence(claim, fencingToken)),
      (answers, open) => {
        const raised = answers.filter((answer) => answer?.status === 'raised').length;
        const decided = raised >= this.#quorum || raised + open < this.#quorum;
        return decided ? { raised, faults: answers.filter(isFault) } : undefined;
      },
    );
    if (raised >= this.#quorum) return undefined;
    return faults.length > 0
      ? { status: 'unavailable', causes: faults.map((fault) => fault.error) }
      : { status: 'contended', queued: false }; // its keys were deleted or ran out meanwhile
  }

  /** Waits until a majority is connected. */
  async #connectedQuorum(timeoutMs: number): Promise<void> {
    const isReady = ({ node }: RedlockNode) => node.connection.isReady;
    if (this.#nodes.filter(isReady).length >= this.#quorum) return;
    await countVotes(
      this.#nodes.map(({ node }) => node.connection.ready(timeoutMs)),
      (_, open) => open === 0 || this.#nodes.filter(isReady).length >= this.#quorum || undefined,
    );
  }

  /** Whether the open votes can no longer change what a refusal says: which nodes failed, or who is the holder. */
  #knowsWhy(votes: readonly (Vote | undefined)[], open: number): boolean {
    if (this.#answered(votes) < this.#quorum) return false;
    const owners = votes.filter((vote) => vote?.status === 'refused').map((vote) => vote.owner);
    return agreed(owners, this.#quorum) !== undefined || agreed(owners, this.#quorum - open) === undefined;
  }

  /** How many nodes answered, or still may. */
  #answered(votes: readonly (Vote | undefined)[]): number {
    return votes.length - votes.filter(isFault).length;
  }

  /** Contended when a majority answered at all: then others are in the way, not the network. */
  #refusal(votes: readonly (Vote | undefined)[], queued: boolean): AcquireOutcome {
    if (this.#answered(votes) < this.#quorum) {
      return { status: 'unavailable', causes: votes.filter(isFault).map((fault) => fault.error) };
    }
    const refusals = votes.filter((vote) => vote?.status === 'refused');
    const owner = agreed(
      refusals.map((vote) => vote.owner),
      this.#quorum,
    );
    if (owner === undefined) return { status: 'contended', queued };
    const remaining = refusals.filter((vote) => vote.owner === owner).map((vote) => vote.remainingMs);
    return { status: 'contended', owner, remainingMs: Math.max(...remaining), queued };
  }

  /** Nobody keeps a minority, and no late vote stays behind. */
  #undo(claim: Claim): void {
    for (const node of this.#nodes) node.undo(claim);
  }

  /** A place that is left behind would be woken in vain, in the place of somebody who waits. */
  #leaveWhereRefused(key: string, place: Place, ballots: readonly Promise<Vote>[]): void {
    ballots.forEach((ballot, index) => {
      const { node } = this.#nodes[index]!;
      void ballot.then((vote) => (vote.status === 'refused' ? node.leave(key, place) : undefined));
    });
  }

  #unavailable(operation: string, key: string, faults: readonly Fault[]): LockUnavailableError {
    return LockUnavailableError.from(
      operation,
      key,
      faults.map((fault) => fault.error),
    );
  }
}

function isGranted(vote: Vote | undefined): vote is Granted {
  return vote?.status === 'granted';
}

function isFault(answer: { status: string } | undefined): answer is Fault {
  return answer?.status === 'fault';
}

/** The value that at least `quorum` of the nodes gave. */
function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}
