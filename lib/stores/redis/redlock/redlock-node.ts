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

/** The state of a lock on one node, as far as its answers show. */
export class Trace {
  /** After the last answer the lock is, or may be, there. Never true for a dead node, so no releases pile up for it. */
  mayBeThere = false;
  /** A command that takes it was not answered, and may yet run. */
  mayComeLate = false;
  /** Stands for the connection that its vote was asked on. */
  votedOn?: unknown;
  /** Whether its vote waits to be sent; undefined once no answer is open any more. */
  vote?: Sending;
  /** How many answers are still to come. */
  open = 0;
  /** The attempt was refused, lost or released: the lock is not put back. */
  over = false;
  /** Called once no answer is open any more. */
  afterwards?: () => void;

  constructor(private readonly attempt: RedlockAttempt) {}

  /** Whether a vote that waits in this process is still of use: a release overtakes it, and it must not run behind that. */
  get isWanted(): boolean {
    const { fencingToken, asker } = this.attempt;
    return !this.over && (fencingToken !== undefined || asker?.isWanted !== false);
  }

  /** Notes that an answer came. */
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

/** An attempt to hold a lock on a majority of nodes, and its grant, with a trace for each node. */
export class RedlockAttempt extends StoredGrant {
  readonly #traces: (Trace | undefined)[] = [];
  /** Who asks, while the attempt is open. */
  asker?: AcquireRequest['asker'];
  /** Until when the lock is kept, by the monotonic clock, if that is how its work has ended. */
  keepUntil?: number;

  /** @param node its index */
  trace(node: number): Trace {
    return (this.#traces[node] ??= new Trace(this));
  }

  /** The trace of a node; undefined when the node was never asked. */
  knownTrace(node: number): Trace | undefined {
    return this.#traces[node];
  }
}

/** Takes the answer of a node. @param at the index of the node  @param sentAt when it was asked; Infinity if it was not */
export type Answered<One> = (answer: One, at: number, sentAt: number) => void;

/** Answers after which the lock stands on the node. */
const THERE = new Set<string>(['granted', 'extended']);

/**
 * One of the nodes of a Redlock. The backend decides without waiting for the slowest nodes, so a lock may be released while
 * a command for it is in flight here: this class sees to it that nothing stays behind. A `done` callback is called once,
 * after the method has returned.
 */
export class RedlockNode {
  readonly #inFlight = new InFlight();
  #isClosing = false;

  /**
   * @param at its index among the nodes, which is also that of its trace in an attempt
   * @param admission undefined: the node votes whenever it answers
   */
  constructor(
    readonly node: RedisNode,
    private readonly at: number,
    private readonly admission?: AdmissionCheck,
  ) {
    // The server may have restarted while there was no connection.
    node.onReady = () => {
      if (!this.#isClosing) void admission?.checked();
    };
  }

  /** Whether it can be asked now. */
  get isReady(): boolean {
    return this.node.isReady && (this.admission?.isSettled ?? true);
  }

  /**
   * Waits until it can be asked. Never rejects.
   * @returns the problem after `timeoutMs`; undefined when it can be asked
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

  /** Asks the node once, unless it is known not to vote. @returns why it does not vote */
  async ping(): Promise<NodeError | undefined> {
    return (this.node.isReady && this.abstention) || this.node.pingProblem();
  }

  /** Why it does not vote although it answers. */
  get abstention(): NodeError | undefined {
    const vote = this.admission?.vote();
    return vote instanceof NodeError ? vote : undefined;
  }

  /**
   * @param value of the lock: the owner, and the token that all nodes are asked to vote for
   */
  acquire(attempt: RedlockAttempt, request: AcquireRequest, value: string, done: Answered<Vote>): void {
    const trace = attempt.trace(this.at);
    const admitted = this.admission?.vote();
    if (admitted instanceof NodeError) {
      void Promise.resolve(failed(admitted)).then((fault) => done(fault, this.at, Infinity));
      return;
    }
    trace.votedOn = this.#generation;
    trace.vote = this.node.vote(request, admitted, value, this.#noting('takes', trace, done), trace);
  }

  /**
   * Raises the fencing counter to a token. A node that has restarted since it voted, with older data, may have forgotten votes
   * for others: so it is asked only on the connection of its vote.
   */
  raise(attempt: RedlockAttempt, fencingToken: number, done: (raise: Raise) => void): void {
    const isSame = !this.admission || attempt.trace(this.at).votedOn === this.#generation;
    const raising = isSame ? this.node.raiseFence(attempt, fencingToken) : Promise.resolve({ status: 'gone' } as const);
    void raising.then(done);
  }

  extend(
    attempt: RedlockAttempt,
    { ttlMs, waiting }: Omit<ExtendRequest, 'grant'>,
    done: Answered<Answer<ExtendOutcome>>,
  ): void {
    const trace = attempt.trace(this.at);
    this.node.extend({ grant: attempt, ttlMs, waiting }, this.#noting('keeps', trace, done));
  }

  /** Puts the lock back on this node, which has lost it, as its answer to an extension says. Its value needs its token. */
  mend(attempt: RedlockAttempt, ttlMs: number): void {
    const trace = attempt.trace(this.at);
    if (trace.over || attempt.fencingToken === undefined) return;
    this.node.restore(attempt, ttlMs, this.#noting('takes', trace));
  }

  /**
   * Releases at once, and again if a command that was in flight has run after it. Where the attempt is kept, all this keeps the
   * lock for what is left: a vote or a put-back that comes late is one more node that has it.
   */
  release(attempt: RedlockAttempt, done: (answer: Answer<ReleaseOutcome>, at: number) => void): void {
    const trace = attempt.knownTrace(this.at);
    if (!trace) {
      this.node.release(attempt, attempt, (answer) => done(answer, this.at));
      return;
    }
    trace.over = true;
    // A vote that waits in this process is withdrawn: to release it would only hold up others.
    const isWithdrawn = trace.open === 1 && !trace.mayComeLate && trace.vote?.isWaiting;
    if (!trace.mayBeThere && (trace.open === 0 || isWithdrawn)) {
      if (isWithdrawn) this.#releaseAfterwards(attempt, trace);
      void Promise.resolve({ status: 'gone' } as const).then((answer) => done(answer, this.at));
      return;
    }
    // A command whose script the server does not know is sent a second time, behind the release.
    if (trace.open > 0) this.#releaseAfterwards(attempt, trace);
    this.#release(attempt, trace, done);
  }

  /** Releases once all answers in flight are in, and only if the lock may be there. */
  undo(attempt: RedlockAttempt): void {
    const trace = attempt.trace(this.at);
    trace.over = true;
    this.#releaseAfterwards(attempt, trace);
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#inFlight.settled();
    await this.node.close();
  }

  get #generation(): unknown {
    return this.node.connection.client.generation;
  }

  #release(attempt: RedlockAttempt, trace: Trace, done?: (answer: Answer<ReleaseOutcome>, at: number) => void): void {
    trace.open++;
    const released = (answer: Answer<ReleaseOutcome>) => {
      if (answer.status !== 'unavailable') trace.mayBeThere = false;
      trace.settle();
      done?.(answer, this.at);
    };
    this.node.release(attempt, attempt, released, trace.mayComeLate ? Infinity : undefined);
  }

  #releaseAfterwards(attempt: RedlockAttempt, trace: Trace): void {
    if (trace.afterwards) return;
    this.#inFlight.begin();
    trace.afterwards = () => {
      if (trace.mayBeThere) this.#release(attempt, trace);
      this.#inFlight.end();
    };
    if (trace.open === 0) trace.conclude();
  }

  /** Makes the callback of a command that is about to be sent: it notes the answer in the trace first. */
  #noting<One extends Vote | Answer<ExtendOutcome>>(
    command: 'takes' | 'keeps',
    trace: Trace,
    done?: Answered<One>,
  ): (answer: One, sentAt?: number) => void {
    trace.open++;
    return (answer, sentAt = Infinity) => {
      if (answer.status !== 'unavailable') trace.mayBeThere = THERE.has(answer.status);
      else if (answer.mayHaveRun) {
        trace.mayBeThere = true;
        trace.mayComeLate ||= command === 'takes';
      } else if ('wiped' in answer && answer.wiped !== undefined) this.admission?.revoke(answer.wiped);
      trace.settle();
      done?.(answer, this.at, sentAt);
    };
  }
}
