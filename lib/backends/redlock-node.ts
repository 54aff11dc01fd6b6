import type { Claim, Waiting } from './lock-backend.js';
import type { NodeExtension, NodeRelease, RedisNode, Seen, Vote } from './redis-node.js';

/** What is known of a claim on a node. */
interface Trace {
  /** By the last answer the lock is there, or may be. Never on a dead node, so nothing piles up to be released there. */
  mayBeThere: boolean;
  /** Answers that are still to come. */
  open: Set<Promise<unknown>>;
  /** It was refused, lost or released: it is not put back. */
  over: boolean;
}

/** Answers after which the lock stands on the node. */
const THERE = new Set<string>(['granted', 'extended', 'restored']);

/**
 * One of the nodes of a Redlock. The backend decides without waiting for the slowest nodes, so a claim may be given
 * back while a command of it is under way here: this class sees to it that nothing stays behind.
 */
export class RedlockNode {
  readonly #traces = new WeakMap<Claim, Trace>();
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(readonly node: RedisNode) {}

  acquire(claim: Claim, waiting?: Waiting): Promise<Vote> {
    this.#trace(claim).over = false;
    return this.#noted<Vote>(claim, (seen) => this.node.acquire(claim, waiting, seen));
  }

  extend(claim: Claim): Promise<NodeExtension> {
    return this.#noted<NodeExtension>(claim, (seen) => this.node.extend(claim, 'keep', seen));
  }

  /** Puts the lock back if this node, asked to extend it, says or will say that it has lost it. */
  async mend(claim: Claim, extension: Promise<NodeExtension>): Promise<void> {
    const { status } = await extension;
    if (status !== 'absent' || this.#trace(claim).over) return;
    await this.#noted<NodeExtension>(claim, (seen) => this.node.extend(claim, 'restore', seen));
  }

  /** Releases at once, and again if a command that was open has run after it. */
  release(claim: Claim): Promise<NodeRelease> {
    const trace = this.#traces.get(claim);
    if (!trace) return this.node.release(claim);
    trace.over = true;
    if (!trace.mayBeThere && trace.open.size === 0) return Promise.resolve({ status: 'gone' });
    const release = this.#release(claim, trace);
    // A command whose script is unknown to the server is sent a second time, behind the release.
    if (trace.open.size > 0) this.#afterwards(claim, trace, release);
    return release;
  }

  /** Releases after the answers that are still to come, and only if the lock may be there. */
  undo(claim: Claim): void {
    const trace = this.#trace(claim);
    trace.over = true;
    this.#afterwards(claim, trace);
  }

  async close(): Promise<void> {
    await Promise.all(this.#underWay);
    await this.node.close();
  }

  #release(claim: Claim, trace: Trace): Promise<NodeRelease> {
    return this.node.release(claim, ({ status }) => {
      if (status !== 'fault') trace.mayBeThere = false;
    });
  }

  #afterwards(claim: Claim, trace: Trace, release?: Promise<NodeRelease>): void {
    const underWay = Promise.all([...trace.open, release])
      .then(() => (trace.mayBeThere ? this.#release(claim, trace) : undefined))
      .finally(() => this.#underWay.delete(underWay));
    this.#underWay.add(underWay);
  }

  #trace(claim: Claim): Trace {
    let trace = this.#traces.get(claim);
    if (!trace) this.#traces.set(claim, (trace = { mayBeThere: false, open: new Set(), over: false }));
    return trace;
  }

  #noted<Answer extends Vote | NodeExtension>(
    claim: Claim,
    ask: (seen: Seen<Answer>) => Promise<Answer>,
  ): Promise<Answer> {
    const trace = this.#trace(claim);
    const noted = ask((answer) => {
      if (answer.status !== 'fault') trace.mayBeThere = THERE.has(answer.status);
      else if (answer.mayHaveRun) trace.mayBeThere = true;
    }).then((answer) => {
      trace.open.delete(noted);
      return answer;
    });
    trace.open.add(noted);
    return noted;
  }
}
