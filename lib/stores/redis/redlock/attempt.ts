import type { Sending } from '../../../core/backend/lane.js';
import type { AcquireRequest } from '../../../core/backend/lock-backend.js';
import { RedisGrant } from '../node/node-answers.js';

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
export class RedlockAttempt extends RedisGrant {
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
