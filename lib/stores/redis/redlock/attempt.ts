import { RedisGrant, type Sending } from '../node/node-answers.js';

/** The state of a lock on one node, as far as its answers show. */
export interface Trace {
  /** After the last answer the lock is, or may be, there. Never true for a dead node, so no releases pile up for it. */
  mayBeThere: boolean;
  /** A command that takes it was not answered, and may yet run. */
  mayComeLate: boolean;
  /** Stands for the connection that its vote was asked on. */
  votedOn?: unknown;
  /** Whether its vote waits to be sent; undefined once no answer is open any more. */
  vote?: Sending;
  /** How many answers are still to come. */
  open: number;
  /** The attempt was refused, lost or released: the lock is not put back. */
  over: boolean;
  /** Called once no answer is open any more. */
  afterwards?: () => void;
}

/** An attempt to hold a lock on a majority of nodes, and its grant, with a trace for each node. */
export class RedlockAttempt extends RedisGrant {
  readonly #traces: (Trace | undefined)[] = [];
  /** Until when the lock is kept, by the monotonic clock, if that is how its work has ended. */
  keepUntil?: number;

  /** @param node its index */
  trace(node: number): Trace {
    return (this.#traces[node] ??= { mayBeThere: false, mayComeLate: false, open: 0, over: false });
  }

  /** The trace of a node; undefined when the node was never asked. */
  knownTrace(node: number): Trace | undefined {
    return this.#traces[node];
  }
}
