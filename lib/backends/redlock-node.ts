import { NodeError } from '../errors.js';
import { UnderWay } from '../under-way.js';
import type { Claim, Waiting } from './lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, Told, Vote } from './node-answers.js';
import type { RedisNode } from './redis-node.js';
import type { RestartGuard } from './restart-guard.js';

/** What is known of a claim on a node. */
interface Trace {
  /** By the last answer the lock is there, or may be. Never on a dead node, so nothing piles up to be released there. */
  mayBeThere: boolean;
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
 * back while a command of it is under way here: this class sees to it that nothing stays behind.
 */
export class RedlockNode {
  readonly #traces = new WeakMap<Claim, Trace>();
  readonly #underWay = new UnderWay();

  /** @param guard none: it votes whenever it answers */
  constructor(
    readonly node: RedisNode,
    private readonly guard?: RestartGuard,
  ) {}

  /** Whether it can be asked now. */
  get isReady(): boolean {
    return this.node.connection.isReady && (this.guard?.isSettled ?? true);
  }

  /**
   * Waits until it can be asked.
   * @returns what is wrong after `timeoutMs`
   */
  async ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined> {
    const error = await this.node.connection.ready(timeoutMs, when);
    if (!error) await this.guard?.checked();
    return error;
  }

  /** Why it does not vote although it answers. */
  get abstention(): NodeError | undefined {
    const vote = this.guard?.vote();
    return typeof vote === 'object' ? vote : undefined;
  }

  acquire(claim: Claim, waiting?: Waiting): Promise<Vote> {
    this.#trace(claim).over = false;
    const ask = () => {
      const epoch = this.guard?.vote() ?? '';
      if (typeof epoch === 'object') return Promise.resolve(notAsked(epoch));
      return this.#noted<Vote>(claim, (told) => this.node.vote(claim, waiting, epoch, told));
    };
    return this.#onceTold(claim, ask);
  }

  extend(claim: Claim): Promise<NodeExtension> {
    const ask = () => this.#noted<NodeExtension>(claim, (told) => this.node.extend(claim, 'keep', told));
    return this.#onceTold(claim, ask);
  }

  /** Puts the lock back if this node, asked to extend it, says or will say that it has lost it. */
  async mend(claim: Claim, extension: Promise<NodeExtension>): Promise<void> {
    const { status } = await extension;
    if (status !== 'absent' || this.#trace(claim).over) return;
    await this.#noted<NodeExtension>(claim, (told) => this.node.extend(claim, 'restore', told));
  }

  /** Releases at once, and again if a command that was open has run after it. */
  release(claim: Claim): Promise<NodeRelease> {
    const trace = this.#traces.get(claim);
    if (!trace) return this.node.release(claim);
    trace.over = true;
    if (!trace.mayBeThere && trace.open === 0) return Promise.resolve({ status: 'gone' });
    // A command whose script is unknown to the server is sent a second time, behind the release.
    if (trace.open > 0) this.#releaseAfterwards(claim, trace);
    return this.#release(claim, trace);
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

  #release(claim: Claim, trace: Trace): Promise<NodeRelease> {
    trace.open++;
    return this.node.release(claim, (release) => {
      if (release.status !== 'fault') trace.mayBeThere = false;
      settle(trace);
      return release;
    });
  }

  #releaseAfterwards(claim: Claim, trace: Trace): void {
    if (trace.afterwards) return;
    this.#underWay.begin();
    trace.afterwards = () => {
      if (trace.mayBeThere) void this.#release(claim, trace);
      this.#underWay.end();
    };
    if (trace.open === 0) conclude(trace);
  }

  /** A node hears of a longer ttl than any before it first grants it: by that it knows for how long to abstain. */
  #onceTold<Answer>(claim: Claim, ask: () => Promise<Answer>): Promise<Answer | Fault> {
    const { guard } = this;
    return !guard || guard.hasHeardOf(claim.ttlMs) ? ask() : this.#tell(guard, claim, ask);
  }

  async #tell<Answer>(guard: RestartGuard, claim: Claim, ask: () => Promise<Answer>): Promise<Answer | Fault> {
    const fault = await guard.tell(claim.ttlMs);
    if (fault) return fault;
    // Given up meanwhile: what is asked for now nobody would give back.
    if (this.#trace(claim).over) return notAsked(new NodeError(this.node.name, 'it was not asked in time'));
    return ask();
  }

  #trace(claim: Claim): Trace {
    let trace = this.#traces.get(claim);
    if (!trace) this.#traces.set(claim, (trace = { mayBeThere: false, open: 0, over: false }));
    return trace;
  }

  #noted<Answer extends Vote | NodeExtension>(
    claim: Claim,
    ask: (told: Told<Answer, Answer>) => Promise<Answer>,
  ): Promise<Answer> {
    const trace = this.#trace(claim);
    trace.open++;
    return ask((answer) => {
      if (answer.status !== 'fault') trace.mayBeThere = THERE.has(answer.status);
      else if (answer.mayHaveRun) trace.mayBeThere = true;
      else if (answer.wiped !== undefined) this.guard?.revoke(answer.wiped);
      settle(trace);
      return answer;
    });
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
