import { NodeError } from '../../../api/errors.js';
import { nodeError } from '../client/advice.js';
import { problemOf } from '../client/problem-of.js';
import { InFlight } from '../../../core/time/in-flight.js';
import type { AcquireRequest, HandOver, WaitListener } from '../../../core/backend/lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, Vote } from '../node/node-answers.js';
import type { RedisNode, RedisNodeListener } from '../node/redis-node.js';
import type { AdmissionCheck } from './admission.js';
import type { RedlockAttempt, Trace } from './attempt.js';

/** Answers after which the lock stands on the node. */
const THERE = new Set<string>(['granted', 'extended', 'restored']);

/**
 * One of the nodes of a Redlock. The backend decides without waiting for the slowest nodes, so a lock may be given
 * back while a command for it is under way here: this class sees to it that nothing stays behind. Who is `told` an answer is
 * called once, after the call has returned.
 */
export class RedlockNode implements RedisNodeListener {
  readonly #inFlight = new InFlight();
  #listener?: WaitListener;
  #isClosing = false;

  /**
   * @param at its index among the nodes: by which an attempt has its trace
   * @param admission none: it votes whenever it answers
   */
  constructor(
    readonly node: RedisNode,
    private readonly at: number,
    private readonly admission?: AdmissionCheck,
  ) {
    node.listen(this);
  }

  /** Whether it can be asked now. */
  get isReady(): boolean {
    return this.node.isReady && (this.admission?.isSettled ?? true);
  }

  /**
   * Waits until it can be asked. Never rejects.
   * @returns what is wrong after `timeoutMs`
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    try {
      const error = await this.node.connection.ready(timeoutMs, when);
      if (!error) await this.admission?.checked();
      return error;
    } catch (bug) {
      return nodeError(this.node.name, problemOf(bug)); // of a client that throws
    }
  }

  /** Why it does not vote although it answers. */
  get abstention(): NodeError | undefined {
    const vote = this.admission?.vote();
    return vote instanceof NodeError ? vote : undefined;
  }

  acquire(attempt: RedlockAttempt, request: AcquireRequest, told: (vote: Vote) => void): void {
    const trace = attempt.trace(this.at);
    const ask = () => {
      const admitted = this.admission?.vote();
      if (admitted instanceof NodeError) void Promise.resolve(notAsked(admitted)).then(told);
      else this.node.vote(request, admitted, this.#noting('takes', trace, told));
    };
    this.#onceTold(attempt, request.ttlMs, ask, told);
  }

  extend(attempt: RedlockAttempt, ttlMs: number, told: (extension: NodeExtension) => void): void {
    const request = { grant: attempt, ttlMs };
    const ask = () => this.node.extend(request, 'keep', this.#noting('keeps', attempt.trace(this.at), told));
    this.#onceTold(attempt, ttlMs, ask, told);
  }

  /** Puts the lock back: this node, asked to extend it, has said that it has lost it. */
  mend(attempt: RedlockAttempt, ttlMs: number): void {
    const trace = attempt.trace(this.at);
    if (trace.over) return;
    this.node.extend({ grant: attempt, ttlMs }, 'restore', this.#noting<NodeExtension>('takes', trace));
  }

  /** Releases at once, and again if a command that was open has run after it. */
  release(attempt: RedlockAttempt, told: (release: NodeRelease) => void): void {
    const trace = attempt.knownTrace(this.at);
    if (!trace) {
      this.node.release(attempt, told);
      return;
    }
    trace.over = true;
    if (!trace.mayBeThere && trace.open === 0) {
      void Promise.resolve({ status: 'gone' } as const).then(told);
      return;
    }
    // A command whose script is unknown to the server is sent a second time, behind the release.
    if (trace.open > 0) this.#releaseAfterwards(attempt, trace);
    this.#release(attempt, trace, told);
  }

  /** Releases after the answers that are still to come, and only if the lock may be there. */
  undo(attempt: RedlockAttempt): void {
    const trace = attempt.trace(this.at);
    trace.over = true;
    this.#releaseAfterwards(attempt, trace);
  }

  /** Reports to this listener from now on what those that wait should know, and begins to listen for that. */
  listen(listener: WaitListener): void {
    this.#listener = listener;
    this.node.openInbox();
  }

  /** @internal */
  onTurn(ticket?: string): void {
    this.#listener?.onTurn(ticket);
  }

  /** @internal */
  onHandOver(ticket: string, handOver: HandOver): void {
    this.#listener?.onHandOver(ticket, handOver);
  }

  /** @internal */
  onTaken(key: string, owner: string): void {
    this.#listener?.onTaken(key, owner);
  }

  /** @internal The server may have restarted while there was no connection. */
  onReady(): void {
    if (!this.#isClosing) void this.admission?.checked();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#inFlight.settled();
    await this.node.close();
  }

  #release(attempt: RedlockAttempt, trace: Trace, told?: (release: NodeRelease) => void): void {
    trace.open++;
    const released = (release: NodeRelease) => {
      if (release.status !== 'fault') trace.mayBeThere = false;
      settle(trace);
      told?.(release);
    };
    this.node.release(attempt, released, trace.mayComeLate ? Infinity : undefined);
  }

  #releaseAfterwards(attempt: RedlockAttempt, trace: Trace): void {
    if (trace.afterwards) return;
    this.#inFlight.begin();
    trace.afterwards = () => {
      if (trace.mayBeThere) this.#release(attempt, trace);
      this.#inFlight.end();
    };
    if (trace.open === 0) conclude(trace);
  }

  /** A node hears of a longer ttl than any before it first grants it: by that it knows for how long to abstain. */
  #onceTold(attempt: RedlockAttempt, ttlMs: number, ask: () => void, refused: (fault: Fault) => void): void {
    if (!this.admission || this.admission.hasHeardOf(ttlMs)) {
      ask();
      return;
    }
    const refuse = (problem: string) => refused(notAsked(nodeError(this.node.name, problem)));
    void this.admission.tell(ttlMs).then(
      (fault) => {
        if (fault) refused(fault);
        // Given up meanwhile: what is asked for now nobody would give back.
        else if (attempt.trace(this.at).over) refuse('the attempt ended before it could be asked');
        else ask();
      },
      (bug: unknown) => refuse(String(bug)),
    );
  }

  /** A command of an attempt is about to be sent: notes its answer first, then tells it. */
  #noting<Answer extends Vote | NodeExtension>(
    command: 'takes' | 'keeps',
    trace: Trace,
    told?: (answer: Answer) => void,
  ): (answer: Answer) => void {
    trace.open++;
    return (answer) => {
      if (answer.status !== 'fault') trace.mayBeThere = THERE.has(answer.status);
      else if (answer.mayHaveRun) {
        trace.mayBeThere = true;
        trace.mayComeLate ||= command === 'takes';
      } else if (answer.wiped !== undefined) this.admission?.revoke(answer.wiped);
      settle(trace);
      told?.(answer);
    };
  }
}

function settle(trace: Trace): void {
  if (--trace.open === 0) conclude(trace);
}

function conclude(trace: Trace): void {
  const { afterwards } = trace;
  trace.afterwards = undefined;
  afterwards?.();
}

function notAsked(error: NodeError): Fault {
  return { status: 'fault', error, mayHaveRun: false, disconnected: false };
}
