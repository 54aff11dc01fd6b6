import { NodeError } from '../../../api/errors.js';
import { nodeError } from '../client/advice.js';
import { problemOf } from '../../node/problem-of.js';
import { InFlight } from '../../../core/time/in-flight.js';
import type { Sending } from '../../../core/backend/lane.js';
import type {
  AcquireRequest,
  ExtendOutcome,
  ExtendRequest,
  ReleaseOutcome,
} from '../../../core/backend/lock-backend.js';
import { failed, StoredGrant, type Answer } from '../../node/server.backend.js';
import type { Vote } from '../node/lock-scripts.js';
import type { RedisNode } from '../node/redis-node.js';
import type { AdmissionCheck } from './admission.js';
import type { Raise } from './decisions.js';

/** The known state of an attempt, or of its lock, on one node. */
export class NodeAttempt {
  /** Whether the lock may be on the node, according to its last answer. Never true for a dead node, so no releases pile up for it. */
  mayBeThere = false;
  /** Whether an unanswered command may still take the lock. */
  mayComeLate = false;
  /** Identifies the connection of its vote. */
  votedOn?: unknown;
  /** The state of its unsent vote; undefined once all answers are in. */
  vote?: Sending;
  /** The number of missing answers. */
  open = 0;
  /** Whether the attempt was refused, lost or released, so that the lock is not restored. */
  over = false;
  /** Called once all answers are in. */
  afterwards?: () => void;

  constructor(private readonly attempt: RedlockAttempt) {}

  /** Whether an unsent vote is still useful. A release overtakes it, and it must not run after that. */
  get isWanted(): boolean {
    const { fencingToken, asker } = this.attempt;
    return !this.over && (fencingToken !== undefined || asker?.isWanted !== false);
  }

  /** Records that an answer came. */
  settle(): void {
    if (--this.open === 0) this.conclude();
  }

  /** Called when no answer is open. */
  conclude(): void {
    const { afterwards } = this;
    this.afterwards = this.vote = undefined;
    afterwards?.();
  }
}

/** An attempt to hold a lock on a majority of nodes, and its grant, with the state on each node. */
export class RedlockAttempt extends StoredGrant {
  readonly #nodeAttempts: (NodeAttempt | undefined)[] = [];
  /** The caller, while the attempt is open. */
  asker?: AcquireRequest['asker'];
  /** The nodes keep the lock until then after its work has ended, by the monotonic clock. */
  keepUntil?: number;

  /** @param node its index */
  nodeAttempt(node: number): NodeAttempt {
    return (this.#nodeAttempts[node] ??= new NodeAttempt(this));
  }

  /** The state on a node; undefined if the node was never asked. */
  knownNodeAttempt(node: number): NodeAttempt | undefined {
    return this.#nodeAttempts[node];
  }
}

/** Receives the answer of a node. @param at the index of the node @param sentAt the time when it was asked; Infinity if it was not */
export type Answered<One> = (answer: One, at: number, sentAt: number) => void;

/** Answers after which the lock is on the node. */
const STATUSES_ON_NODE = new Set<string>(['granted', 'extended']);

/**
 * One node of a Redlock. The backend decides without waiting for the slowest nodes, so a lock may be released while a command for it is in
 * flight. This class ensures that nothing stays behind. A `done` callback is called once, after the method has returned.
 */
export class RedlockNode {
  readonly #inFlight = new InFlight();
  #isClosing = false;

  /**
   * @param at its index among the nodes, also for its state in an attempt
   * @param admission undefined if the node votes without admission
   */
  constructor(
    readonly node: RedisNode,
    private readonly at: number,
    private readonly admission?: AdmissionCheck,
  ) {
    // The server may have restarted while it was disconnected.
    node.onReady = () => {
      if (!this.#isClosing) void admission?.checked();
    };
  }

  /** Whether it can be asked to vote now. */
  get isReady(): boolean {
    return this.node.isReady && (this.admission?.isSettled ?? true);
  }

  /**
   * Waits until it can be asked to vote. Never rejects.
   * @returns the problem after `timeoutMs`; undefined when it is ready
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    try {
      const error = await this.node.connection.ready(timeoutMs, when);
      if (!error) await this.admission?.checked();
      return error;
    } catch (bug) {
      return nodeError(this.node.name, problemOf(bug)); // the client threw
    }
  }

  /** Asks the node once, unless it abstains. @returns why it does not vote */
  async ping(): Promise<NodeError | undefined> {
    return (this.node.isReady && this.abstention) || this.node.pingProblem();
  }

  /** The reason why it does not vote although it is connected. */
  get abstention(): NodeError | undefined {
    const vote = this.admission?.vote();
    return vote instanceof NodeError ? vote : undefined;
  }

  /**
   * @param value the value of the lock: the owner and the proposed token
   */
  acquire(attempt: RedlockAttempt, request: AcquireRequest, value: string, done: Answered<Vote>): void {
    const nodeAttempt = attempt.nodeAttempt(this.at);
    const admitted = this.admission?.vote();
    if (admitted instanceof NodeError) {
      void Promise.resolve(failed(admitted)).then((fault) => done(fault, this.at, Infinity));
      return;
    }
    nodeAttempt.votedOn = this.#generation;
    nodeAttempt.vote = this.node.vote(
      request,
      admitted,
      value,
      this.#recording('takes', nodeAttempt, done),
      nodeAttempt,
    );
  }

  /**
   * Raises the fencing counter to a token, but only on the connection of the vote. A node that has restarted with older data since then may
   * have forgotten votes for others.
   */
  raise(attempt: RedlockAttempt, fencingToken: number, done: (raise: Raise) => void): void {
    const isSame = !this.admission || attempt.nodeAttempt(this.at).votedOn === this.#generation;
    const raising = isSame ? this.node.raiseFence(attempt, fencingToken) : Promise.resolve({ status: 'gone' } as const);
    void raising.then(done);
  }

  extend(
    attempt: RedlockAttempt,
    { ttlMs, waiting }: Omit<ExtendRequest, 'grant'>,
    done: Answered<Answer<ExtendOutcome>>,
  ): void {
    const nodeAttempt = attempt.nodeAttempt(this.at);
    this.node.extend({ grant: attempt, ttlMs, waiting }, this.#recording('keeps', nodeAttempt, done));
  }

  /** Restores the lock on this node, which has lost it according to its answer to an extension. The value needs the token. */
  restore(attempt: RedlockAttempt, ttlMs: number): void {
    const nodeAttempt = attempt.nodeAttempt(this.at);
    if (nodeAttempt.over || attempt.fencingToken === undefined) return;
    this.node.restore(attempt, ttlMs, this.#recording('takes', nodeAttempt));
  }

  /**
   * Releases at once, and again if a command in flight runs afterwards. If the lock stays until `keepUntil`, both commands keep it: so
   * a node that grants or restores the lock late also keeps it.
   */
  release(attempt: RedlockAttempt, done: (answer: Answer<ReleaseOutcome>, at: number) => void): void {
    const nodeAttempt = attempt.knownNodeAttempt(this.at);
    if (!nodeAttempt) {
      this.node.release(attempt, attempt, (answer) => done(answer, this.at));
      return;
    }
    nodeAttempt.over = true;
    // An unsent vote is withdrawn. A release would only delay others.
    const isWithdrawn = nodeAttempt.open === 1 && !nodeAttempt.mayComeLate && nodeAttempt.vote?.isWaiting;
    if (!nodeAttempt.mayBeThere && (nodeAttempt.open === 0 || isWithdrawn)) {
      if (isWithdrawn) this.#releaseAfterwards(attempt, nodeAttempt);
      void Promise.resolve({ status: 'gone' } as const).then((answer) => done(answer, this.at));
      return;
    }
    // A command whose script the server does not know is sent again, behind the release.
    if (nodeAttempt.open > 0) this.#releaseAfterwards(attempt, nodeAttempt);
    this.#release(attempt, nodeAttempt, done);
  }

  /** Releases after all answers are in, and only if the lock may be on the node. */
  undo(attempt: RedlockAttempt): void {
    const nodeAttempt = attempt.nodeAttempt(this.at);
    nodeAttempt.over = true;
    this.#releaseAfterwards(attempt, nodeAttempt);
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#inFlight.settled();
    await this.node.close();
  }

  get #generation(): unknown {
    return this.node.connection.client.generation;
  }

  #release(
    attempt: RedlockAttempt,
    nodeAttempt: NodeAttempt,
    done?: (answer: Answer<ReleaseOutcome>, at: number) => void,
  ): void {
    nodeAttempt.open++;
    const released = (answer: Answer<ReleaseOutcome>) => {
      if (answer.status !== 'unavailable') nodeAttempt.mayBeThere = false;
      nodeAttempt.settle();
      done?.(answer, this.at);
    };
    this.node.release(attempt, attempt, released, nodeAttempt.mayComeLate ? Infinity : undefined);
  }

  #releaseAfterwards(attempt: RedlockAttempt, nodeAttempt: NodeAttempt): void {
    if (nodeAttempt.afterwards) return;
    this.#inFlight.begin();
    nodeAttempt.afterwards = () => {
      if (nodeAttempt.mayBeThere) this.#release(attempt, nodeAttempt);
      this.#inFlight.end();
    };
    if (nodeAttempt.open === 0) nodeAttempt.conclude();
  }

  /** Makes the callback of a command that is about to be sent: it first records the answer in the state of the attempt. */
  #recording<One extends Vote | Answer<ExtendOutcome>>(
    command: 'takes' | 'keeps',
    nodeAttempt: NodeAttempt,
    done?: Answered<One>,
  ): (answer: One, sentAt?: number) => void {
    nodeAttempt.open++;
    return (answer, sentAt = Infinity) => {
      if (answer.status !== 'unavailable') nodeAttempt.mayBeThere = STATUSES_ON_NODE.has(answer.status);
      else if (answer.mayHaveRun) {
        nodeAttempt.mayBeThere = true;
        nodeAttempt.mayComeLate ||= command === 'takes';
      } else if ('wiped' in answer && answer.wiped !== undefined) this.admission?.revoke(answer.wiped);
      nodeAttempt.settle();
      done?.(answer, this.at, sentAt);
    };
  }
}
