import { performance } from 'node:perf_hooks';
import { MAX_PROPOSAL_DISTANCE_US } from '../node/lock-scripts.js';

/** Proposals ignore tokens that are further ahead, in microseconds: the clock or the counter of that node is wrong. */
const MAX_FOLLOWED_LEAD_US = 0.9 * MAX_PROPOSAL_DISTANCE_US;

/** The time of a node, from one of its answers. */
export interface NodeTime {
  /** The index of the node. */
  node: number;
  /** The time of the node, in microseconds. */
  timeUs: number;
  /** The time when the command was sent, in milliseconds of the clock of this process. */
  askedAt: number;
}

/**
 * Proposes the fencing tokens of a Redlock. If the nodes vote for the same token, no second round trip is needed. So a proposal should be
 * above the counters of all nodes and close to their times. It is the time of this process plus the median lead of the nodes. Safety does
 * not depend on the proposal, which may be any number.
 */
export class Proposals {
  /** The lead of each node over this process, in microseconds; undefined if unknown. */
  readonly #aheadUs: (number | undefined)[] = [];
  readonly #originMs: number;
  #offsetUs = 0;
  /** The last proposal. New proposals are above it, and above the highest known token of other processes. */
  #last = 0;
  #seen = 0;

  /** @param originMs the wall time at the zero of this process's clock, in milliseconds */
  constructor({ originMs = performance.timeOrigin }: { originMs?: number } = {}) {
    this.#originMs = originMs;
  }

  /** @param now the clock of this process, in milliseconds */
  next(now: number): number {
    const timeUs = this.#timeUs(now) + this.#offsetUs;
    // Values far ahead come from a wrong time. Nodes would adjust every proposal until the real time catches up.
    if (this.#last > timeUs + MAX_PROPOSAL_DISTANCE_US) this.#last = 0;
    if (this.#seen > timeUs + MAX_PROPOSAL_DISTANCE_US) this.#seen = 0;
    this.#last = Math.max(timeUs, this.#last + 1, this.#seen + 1);
    return this.#last;
  }

  /** Learns the time of a node. A single wrong clock does not matter, because the median counts. */
  learnTime({ node, timeUs, askedAt }: NodeTime): void {
    if (!Number.isSafeInteger(timeUs) || timeUs <= 0) return; // from another program: every later proposal would be NaN
    this.#aheadUs[node] = timeUs - this.#timeUs(askedAt);
    const known = this.#aheadUs.filter((aheadUs) => aheadUs !== undefined).sort((a, b) => a - b);
    this.#offsetUs = known[Math.floor((known.length - 1) / 2)]!;
  }

  /** Learns from a vote that differs from the proposal: the counter was ahead of it, or the time of the node was far away. */
  learnVote(fencingToken: number, time: NodeTime): void {
    this.learnTime(time);
    const isNear = fencingToken < this.#timeUs(time.askedAt) + this.#offsetUs + MAX_FOLLOWED_LEAD_US;
    if (isNear) this.#seen = Math.max(this.#seen, fencingToken);
  }

  #timeUs(now: number): number {
    return Math.round((this.#originMs + now) * 1_000);
  }
}
