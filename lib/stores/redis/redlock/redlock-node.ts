import { NodeError } from '../../../api/errors.js';
import { problemOf } from '../client/problem-of.js';
import { UnderWay } from '../../../core/time/in-flight.js';
import type { Claim, Waiting } from '../../../core/backend/lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, Vote } from '../node/node-answers.js';
import type { RedisNode } from '../node/redis-node.js';
import type { RestartGuard } from './admission.js';

/** What is known of a claim on a node. */
interface Trace {
  /** By the last answer the lock is there, or may be. Never on a dead node, so nothing piles up to be released there. */
  mayBeThere: boolean;
  /** A command that takes it was not answered, and may yet run. */
  mayComeLate: boolean;
  /** How many answers are still to come. */
  open: number;
  /** It was refused, lost or released: it is not put back. */
  over: boolean;
  /** Is called when no answer is to come any more. */
  afterwards?: () => void;
}

/** Answers after which the lock stands on the node. */
const THERE = new Set<string>(['granted', 'extended', 'restored']);

/**
 * One of the nodes of a Redlock. The backend decides without waiting for the slowest nodes, so a claim may be given
 * back while a command of it is under way here: this class sees to it that nothing stays behind. Who is `told` an answer is
 * called once, after the call has returned.
 */
export class RedlockNode {
  readonly #underWay = new UnderWay();

  /**
   * @param at its index among the nodes: where it keeps its notes of a claim
   * @param guard none: it votes whenever it answers
   */
  constructor(
    readonly node: RedisNode,
    private readonly at: number,
    private readonly guard?: RestartGuard,
  ) {}

  /** Whether it can be asked now. */
  get isReady(): boolean {
    return this.node.connection.isReady && (this.guard?.isSettled ?? true);
  }

  /**
   * Waits until it can be asked. Never rejects.
   * @returns what is wrong after `timeoutMs`
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    try {
      const error = await this.node.connection.ready(timeoutMs, when);
      if (!error) await this.guard?.checked();
      return error;
    } catch (bug) {
      return new NodeError(this.node.name, problemOf(bug)); // of a client that throws
    }
  }

  /** Why it does not vote although it answers. */
  get abstention(): NodeError | undefined {
    const vote = this.guard?.vote();
    return vote instanceof NodeError ? vote : undefined;
  }

  acquire(claim: Claim, waiting: Waiting | undefined, told: (vote: Vote) => void): void {
    const trace = this.#trace(claim);
    trace.over = false;
    const ask = () => {
      const admission = this.guard?.vote();
      if (admission instanceof NodeError) void Promise.resolve(notAsked(admission)).then(told);
      else this.node.vote(claim, waiting, admission, this.#noting('takes', trace, told));
    };
    this.#onceTold(claim, ask, told);
  }

  extend(claim: Claim, told: (extension: NodeExtension) => void): void {
    const ask = () => this.node.extend(claim, 'keep', this.#noting('keeps', this.#trace(claim), told));
    this.#onceTold(claim, ask, told);
  }

  /** Puts the lock back: this node, asked to extend it, has said that it has lost it. */
  mend(claim: Claim): void {
    const trace = this.#trace(claim);
    if (!trace.over) this.node.extend(claim, 'restore', this.#noting<NodeExtension>('takes', trace));
  }

  /** Releases at once, and again if a command that was open has run after it. */
  release(claim: Claim, told: (release: NodeRelease) => void): void {
    const trace = traces(claim)[this.at];
    if (!trace) {
      this.node.release(claim, told);
      return;
    }
    trace.over = true;
    if (!trace.mayBeThere && trace.open === 0) {
      void Promise.resolve({ status: 'gone' } as const).then(told);
      return;
    }
    // A command whose script is unknown to the server is sent a second time, behind the release.
    if (trace.open > 0) this.#releaseAfterwards(claim, trace);
    this.#release(claim, trace, told);
  }

  /** Releases after the answers that are still to come, and only if the lock may be there. */
  undo(claim: Claim): void {
    const trace = this.#trace(claim);
    trace.over = true;
    this.#releaseAfterwards(claim, trace);
  }

  async close(): Promise<void> {
    this.guard?.close();
    await this.#underWay.settled();
    await this.node.close();
  }

  #release(claim: Claim, trace: Trace, told?: (release: NodeRelease) => void): void {
    trace.open++;
    const released = (release: NodeRelease) => {
      if (release.status !== 'fault') trace.mayBeThere = false;
      settle(trace);
      told?.(release);
    };
    this.node.release(claim, released, trace.mayComeLate ? Infinity : undefined);
  }

  #releaseAfterwards(claim: Claim, trace: Trace): void {
    if (trace.afterwards) return;
    this.#underWay.begin();
    trace.afterwards = () => {
      if (trace.mayBeThere) this.#release(claim, trace);
      this.#underWay.end();
    };
    if (trace.open === 0) conclude(trace);
  }

  /** A node hears of a longer ttl than any before it first grants it: by that it knows for how long to abstain. */
  #onceTold(claim: Claim, ask: () => void, refused: (fault: Fault) => void): void {
    if (!this.guard || this.guard.hasHeardOf(claim.ttlMs)) {
      ask();
      return;
    }
    const refuse = (problem: string) => refused(notAsked(new NodeError(this.node.name, problem)));
    void this.guard.tell(claim.ttlMs).then(
      (fault) => {
        if (fault) refused(fault);
        // Given up meanwhile: what is asked for now nobody would give back.
        else if (this.#trace(claim).over) refuse('it was not asked in time');
        else ask();
      },
      (bug: unknown) => refuse(String(bug)),
    );
  }

  #trace(claim: Claim): Trace {
    return (traces(claim)[this.at] ??= { mayBeThere: false, mayComeLate: false, open: 0, over: false });
  }

  /** A command of the claim is about to be sent: notes its answer first, then tells it. */
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
      } else if (answer.wiped !== undefined) this.guard?.revoke(answer.wiped);
      settle(trace);
      told?.(answer);
    };
  }
}

/** By node. */
function traces(claim: Claim): (Trace | undefined)[] {
  return (claim.notes ??= []) as (Trace | undefined)[];
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
