import { NodeError } from '../../../api/errors.js';
import {
  LONGEST_TTL_MS,
  type AcquireOutcome,
  type AcquireRequest,
  type Bounds,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type Releasing,
  type WaitListener,
  type WaitQueue,
} from '../../../core/backend/lock-backend.js';
import { unreachable } from '../client/advice.js';
import { NodesBackend } from './nodes.backend.js';
import { valueText } from '../node/lock-keys.js';
import { noteTtl, type Answer } from '../../node/server.backend.js';
import type { Vote } from '../node/lock-scripts.js';
import {
  validatedRaise,
  Poll,
  quorumOf,
  tallyAttempt,
  tallyExtension,
  tallyRelease,
  type Issue,
  type Raise,
  type WriteBack,
} from './decisions.js';
import type { Proposals } from './proposals.js';
import { RedlockAttempt, type RedlockNode } from './redlock-node.js';
import { RedlockWakes } from './wakes.js';

export interface RedlockSettings {
  nodes: readonly RedlockNode[];
  /** The time limit of a node, in milliseconds. */
  nodeTimeoutMs: number;
  /** The clock of the service, in milliseconds. */
  now: () => number;
  proposals: Proposals;
  /** Checks the servers. */
  report: LockBackend['report'];
  /** The ttl of the registration, in milliseconds. No call may use a longer one. */
  longestMs: number;
}

const AFTER_A_RESTART =
  'On a Redlock, that is the ttlMs of the registration: a node that has restarted votes only after every lock that it may have ' +
  'forgotten has ended, so it would have to wait that long. Raise ttlMs of the registration, or keep the lock on one Redis.';

const NO_TRANSFER =
  'On a Redlock, a majority of the nodes would have to change the owner. If only some of them did, neither owner would have a majority, ' +
  'and both would lose the lock. Detach locks of one Redis, a Cluster, or a database.';

const WHY_ONLY_EXCLUSIVE =
  'A Redlock cannot enforce a limit: with three nodes, three holders could each have two nodes, and each node would see only two holders. ' +
  'For shared locks and permits, register one Redis or a Redis Cluster.';

const EXCLUSIVE_ONLY: AcquireOutcome = {
  status: 'unavailable',
  causes: [new NodeError('redlock', 'locks on a Redlock are exclusive', 'Ask for an exclusive lock.', true)],
};

/**
 * Redlock over independent masters (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/): a lock
 * is held when a majority of the nodes granted it. All nodes are asked at once, each with its own time limit, and the
 * votes are counted as they come in. Fencing tokens follow docs/adr/0025-bounded-fencing.md.
 */
export class RedlockBackend extends NodesBackend implements LockBackend, WaitQueue {
  readonly waitQueue: WaitQueue = this;
  readonly handsOver = false;
  readonly whyNoTransfer = NO_TRANSFER;
  readonly whyOnlyExclusive = WHY_ONLY_EXCLUSIVE;
  readonly bounds: Bounds;
  readonly #nodes: readonly RedlockNode[];
  readonly #quorum: number;
  readonly #nodeTimeoutMs: number;
  readonly #now: () => number;
  readonly #proposals: Proposals;
  readonly report: LockBackend['report'];
  #wakes?: RedlockWakes;
  /** The attempts for grants of other processes. */
  readonly #adopted = new WeakMap<Grant, RedlockAttempt>();

  constructor({ nodes, nodeTimeoutMs, now, proposals, report, longestMs }: RedlockSettings) {
    const quorum = quorumOf(nodes.length);
    super(
      nodes.map(({ node }) => node),
      quorum,
    );
    this.bounds = { longestMs: { ms: longestMs, because: AFTER_A_RESTART } };
    this.#nodes = nodes;
    this.#quorum = quorum;
    this.#nodeTimeoutMs = nodeTimeoutMs;
    this.#now = now;
    this.#proposals = proposals;
    this.report = report;
  }

  /** One time limit to connect, one for the votes, and one for the write-back. */
  attemptTimeoutMs(): number {
    return 3 * this.#nodeTimeoutMs;
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    // Without a quorum, it waits for opening connections during the time of one vote.
    if (request.hold.mode !== 'exclusive') void Promise.resolve(EXCLUSIVE_ONLY).then(done);
    else if (this.#hasQuorum) this.#acquire(request, done);
    else void this.#connectedQuorum(this.#nodeTimeoutMs).then(() => this.#acquire(request, done));
  }

  /** Asks for one turn and ignores `turns`: passing a lock on would need a majority that knows a whole block of tokens. */
  #acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    const { place } = request;
    const attempt = new RedlockAttempt(request);
    attempt.asker = request.asker;
    const queued = place !== undefined && this.isListening(request.key);
    const value = valueText(request.owner, this.#proposals.next(this.#now()));
    /** The time of the first granted vote: the lock exists on these nodes for at least its ttl from then on. */
    let sentAt = Infinity;
    const votes = new Poll<Vote>(this.#nodes.length);
    const voted = (vote: Vote, at: number, voteSentAt: number) => {
      if (vote.status === 'granted') {
        sentAt = Math.min(sentAt, voteSentAt);
        const { fencingToken, nodeTimeUs: timeUs } = vote;
        if (timeUs !== undefined) this.#proposals.learnVote(fencingToken, { node: at, timeUs, askedAt: voteSentAt });
      } else if (vote.status === 'refused' && vote.wasPassedOver) {
        // Messages of the other nodes are enough to wake the call. So nothing else reveals a broken subscription to this node.
        this.checkListening(request.key);
      }
      votes.take(vote, at);
    };
    if (place) this.#listenToAll(request.key); // a quorum may be listening already, while the other nodes are not
    for (const node of this.#nodes) node.acquire(attempt, request, value, voted);
    const conclude = (outcome: Issue) => {
      if (outcome.status === 'issued') {
        attempt.fencingToken = outcome.fencingToken;
        attempt.asker = undefined;
        if (place) this.#leaveWhereRefused(request.key, place, votes);
        done({ status: 'acquired', grant: attempt, sentAt });
      } else {
        this.#undo(attempt);
        done(outcome);
      }
    };
    let writeBack: { fencingToken: number; raises: Poll<Raise> } | undefined;
    let isSettled = false;
    const decide = () => {
      if (isSettled) return;
      const tally = tallyAttempt(votes, this.#quorum, queued, writeBack);
      if (tally?.status === 'write-back') {
        // Open votes may still agree, so they continue to count during the write-back.
        writeBack = { fencingToken: tally.fencingToken, raises: this.#writeBack(attempt, tally, votes) };
        writeBack.raises.each(decide);
      } else if (tally) {
        isSettled = true;
        conclude(tally);
      }
    };
    votes.each(decide);
  }

  /**
   * Extends a lock that a majority still has, and then restores it on nodes that have lost it. An earlier restoration would count in the
   * next extension, although another holder may have had the lock in between.
   */
  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    const { grant, ttlMs } = request;
    const attempt = this.#attemptOf(grant);
    noteTtl(attempt, ttlMs);
    const extensions = new Poll<Answer<ExtendOutcome>>(this.#nodes.length);
    for (const node of this.#nodes) node.extend(attempt, request, extensions.take);
    extensions.decide(
      (answers, open) => tallyExtension(answers, open, this.#quorum),
      (outcome) => {
        if (outcome.status === 'extended') {
          extensions.each((answer, at) => {
            const isAbsent = answer.status === 'lost' && answer.reason === 'expired';
            if (isAbsent) this.#nodes[at]!.restore(attempt, ttlMs);
          });
        }
        if (outcome.status === 'lost') this.#undo(attempt);
        done(outcome);
      },
    );
  }

  /** A lock counts as kept if a majority keeps it. It is not restored on nodes that have lost it. */
  release(grant: Grant, { keepUntil }: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    const attempt = this.#attemptOf(grant);
    attempt.keepUntil = keepUntil;
    const releases = new Poll<Answer<ReleaseOutcome>>(this.#nodes.length);
    for (const node of this.#nodes) node.release(attempt, releases.take);
    releases.decide((answers, open) => tallyRelease(answers, open, this.#quorum), done);
  }

  /** Leaves the queues of the nodes that can be reached. */
  leave(key: string, place: Place): void {
    for (const { node } of this.#nodes) if (node.isReady) node.leave(key, place);
  }

  isListening(key: string): boolean {
    return this.#nodes.filter(({ node }) => node.isListening(key)).length >= this.#quorum;
  }

  listen(key: string, listener: WaitListener): void {
    this.#wakes ??= new RedlockWakes(this.#quorum, listener);
    this.#listenToAll(key);
  }

  #listenToAll(key: string): void {
    if (this.#wakes) for (const { node } of this.#nodes) node.listen(key, this.#wakes);
  }

  checkListening(key: string): void {
    for (const { node } of this.#nodes) node.checkListening(key);
  }

  problems(silence: string): NodeError[] {
    const problems = this.#nodes.map(({ node, abstention }) => node.problem(silence) ?? abstention);
    return problems.filter((problem) => problem !== undefined);
  }

  unreleased(owner: string): NodeError | undefined {
    return this.#nodes.map(({ node }) => node.unreleased(owner)).find((cause) => cause !== undefined);
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    await this.#connectedQuorum(timeoutMs, 'start');
    // After a majority is connected, it waits only briefly for the others.
    const restMs = Math.min(timeoutMs, this.#nodeTimeoutMs);
    const ballots = this.#nodes.map((node) => node.ready(restMs, 'start'));
    const errors = (await Promise.all(ballots)).filter((error) => error !== undefined);
    if (this.#nodes.length - errors.length < this.#quorum) throw unreachable(errors, timeoutMs);
    const abstentions = this.#nodes.filter((node) => node.isReady).map((node) => node.abstention);
    return [...errors, ...abstentions.filter((error) => error !== undefined)];
  }

  protected pingEach(): Promise<NodeError | undefined>[] {
    return this.#nodes.map((node) => node.ping());
  }

  async close(): Promise<void> {
    this.#wakes?.close();
    await Promise.all(this.#nodes.map((node) => node.close()));
  }

  /** Records the token on a majority before it is issued, so that no later holder can get a smaller one. */
  #writeBack(attempt: RedlockAttempt, { fencingToken, to }: WriteBack, votes: Poll<Vote>): Poll<Raise> {
    const raises = new Poll<Raise>(to.length);
    to.forEach((asked, at) =>
      this.#nodes[asked]!.raise(attempt, fencingToken, (raise) =>
        votes.each((vote, node) => {
          if (node === asked) raises.take(validatedRaise(raise, vote, fencingToken), at);
        }),
      ),
    );
    return raises;
  }

  /** Whether a majority can be asked. */
  get #hasQuorum(): boolean {
    let ready = 0;
    for (const node of this.#nodes) if (node.isReady) ready++;
    return ready >= this.#quorum;
  }

  async #connectedQuorum(timeoutMs: number, when?: 'start'): Promise<void> {
    if (this.#hasQuorum) return;
    await new Promise<void>((resolve) => {
      let open = this.#nodes.length;
      const asked = () => {
        if (--open === 0 || this.#hasQuorum) resolve();
      };
      for (const node of this.#nodes) void node.ready(timeoutMs, when).then(asked);
    });
  }

  /** Undoes an attempt on all nodes, so that no minority and no late vote stays behind. */
  #undo(attempt: RedlockAttempt): void {
    for (const node of this.#nodes) node.undo(attempt);
  }

  #attemptOf(grant: Grant): RedlockAttempt {
    if (grant instanceof RedlockAttempt) return grant;
    let attempt = this.#adopted.get(grant);
    if (!attempt) {
      attempt = new RedlockAttempt({ ...grant, ttlMs: LONGEST_TTL_MS }, grant.fencingToken);
      this.#adopted.set(grant, attempt);
    }
    return attempt;
  }

  /** Leaves the queues in which this attempt has a place, so that its place uses up no wake-up that another line needs. */
  #leaveWhereRefused(key: string, place: Place, votes: Poll<Vote>): void {
    votes.each(({ status }, at) => {
      if (status === 'refused') this.#nodes[at]!.node.leave(key, place);
    });
  }
}
