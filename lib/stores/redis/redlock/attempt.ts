import { RedisGrant } from '../node/node-answers.js';

/** What is known of a lock on one node. */
export interface Trace {
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

/** An attempt to hold a lock on a majority of nodes, and what it was granted, with a trace for each node. */
export class RedlockAttempt extends RedisGrant {
  readonly #traces: (Trace | undefined)[] = [];

  /** @param node its index */
  trace(node: number): Trace {
    return (this.#traces[node] ??= { mayBeThere: false, mayComeLate: false, open: 0, over: false });
  }

  /** Undefined where the node was not asked for it. */
  knownTrace(node: number): Trace | undefined {
    return this.#traces[node];
  }
}
