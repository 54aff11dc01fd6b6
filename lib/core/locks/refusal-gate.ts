import { performance } from 'node:perf_hooks';
import { LockUnavailableError } from '../../api/errors.js';
import { setImmediate, setTimeout } from '../time/event-loop.js';

/** How often, at most, the refusals of an outage are settled together, in milliseconds. */
const OUTAGE_PACE_MS = 10;

/**
 * Settles the refusals of a service. A call that is refused in microtasks alone, and asks again at once, would stop the event
 * loop: no timer, no answer of Redis, no signal would come through ever again. So no refusal is settled before the loop has run,
 * and those of an outage not more often than every 10 ms, whatever the callers do.
 */
export class RefusalGate {
  readonly #refused = new DeferredBatch((settle) => void setImmediate(settle));
  readonly #unavailable = new DeferredBatch((settle) => this.#paced(settle));
  #settledAt = -Infinity;

  /** Calls back when a call may be refused for this reason. */
  settle(reason: unknown, settle: () => void): void {
    (reason instanceof LockUnavailableError ? this.#unavailable : this.#refused).add(settle);
  }

  /** @throws the reason */
  refuse(reason: unknown): Promise<never> {
    return new Promise((_, reject) => this.settle(reason, () => reject(reason)));
  }

  #paced(settle: () => void): void {
    const paced = () => {
      this.#settledAt = performance.now();
      settle();
    };
    const waitMs = this.#settledAt + OUTAGE_PACE_MS - performance.now();
    if (waitMs > 0) setTimeout(paced, Math.ceil(waitMs));
    else setImmediate(paced);
  }
}

/** Refusals that are settled together. */
class DeferredBatch {
  #all: (() => void)[] = [];

  constructor(private readonly schedule: (doAll: () => void) => void) {}

  add(each: () => void): void {
    this.#all.push(each);
    if (this.#all.length > 1) return;
    this.schedule(() => {
      const all = this.#all;
      this.#all = []; // refusals that these cause wait for the next time
      for (const each of all) each();
    });
  }
}
