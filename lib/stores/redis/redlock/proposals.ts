import { performance } from 'node:perf_hooks';
import { MAX_PROPOSAL_DISTANCE_US } from '../node/lock-scripts.js';

/** Tokens at least this far ahead are not followed: the clock or the counter of their node is wrong. */
const MAX_FOLLOWED_LEAD_US = 0.9 * MAX_PROPOSAL_DISTANCE_US;

/** What a node has answered to a question. */
export interface NodeTime {
  /** The index of the node. */
  node: number;
  /** The time of the node, in microseconds. */
  timeUs: number;
  /** When the question was sent, in milliseconds of the clock of this process. */
  askedAt: number;
}

/**
 * Proposes the fencing tokens of a Redlock. Nodes that vote for the same token need no second round trip, so a proposal should
 * be above the counters of all nodes, and close to their times: it is the time of this process, moved by as much as the nodes
 * in the middle are ahead. A proposal may be any number: safety does not depend on it.
 */
export class Proposals {
  /** How far each node is ahead of this process, in microseconds; undefined while that is unknown. */
  readonly #aheadUs: (number | undefined)[] = [];
  readonly #originMs: number;
  #offsetUs = 0;
  /** The last proposal, and the highest token of another process that was heard of: proposals stay above both. */
  #last = 0;
  #seen = 0;

  /** @param originMs the wall time at which the clock of this process stood at 0, in milliseconds */
  constructor({ originMs = performance.timeOrigin }: { originMs?: number } = {}) {
    this.#originMs = originMs;
  }

  /** @param now the clock of this process, in milliseconds */
  next(now: number): number {
    const timeUs = this.#timeUs(now) + this.#offsetUs;
    // Those far ahead come of a time that turned out to be wrong: nodes would move every proposal until that time.
    if (this.#last > timeUs + MAX_PROPOSAL_DISTANCE_US) this.#last = 0;
    if (this.#seen > timeUs + MAX_PROPOSAL_DISTANCE_US) this.#seen = 0;
    this.#last = Math.max(timeUs, this.#last + 1, this.#seen + 1);
    return this.#last;
  }

  /** Learns the time of a node. One whose clock is wrong does not matter: the node in the middle counts. */
  learnTime({ node, timeUs, askedAt }: NodeTime): void {
    if (!Number.isSafeInteger(timeUs) || timeUs <= 0) return; // not from our scripts: every later proposal would be NaN
    this.#aheadUs[node] = timeUs - this.#timeUs(askedAt);
    const known = this.#aheadUs.filter((aheadUs) => aheadUs !== undefined).sort((a, b) => a - b);
    this.#offsetUs = known[Math.floor((known.length - 1) / 2)]!;
  }

  /** Learns from a vote for another token than the proposal: the counter was ahead of that, or the time of the node far away. */
  learnVote(fencingToken: number, time: NodeTime): void {
    this.learnTime(time);
    const isNear = fencingToken < this.#timeUs(time.askedAt) + this.#offsetUs + MAX_FOLLOWED_LEAD_US;
    if (isNear) this.#seen = Math.max(this.#seen, fencingToken);
  }

  #timeUs(now: number): number {
    return Math.round((this.#originMs + now) * 1_000);
  }
}
