import { performance } from 'node:perf_hooks';
import { LockUnavailableError } from '../../api/errors.js';
import { setImmediate, setTimeout } from '../time/event-loop.js';

/** The shortest time between two batches of refusals during an outage, in milliseconds. */
const OUTAGE_PACE_MS = 10;

/**
 * Settles the refusals of a service. A call that is refused in a microtask, and asks again at once, would block the event loop. So no refusal is
 * settled before the loop has run: its timers, and answers from the network. During an outage, refusals are settled at most every 10 ms.
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

/** Callbacks that run in one batch later. */
class DeferredBatch {
  #all: (() => void)[] = [];

  constructor(private readonly schedule: (doAll: () => void) => void) {}

  add(each: () => void): void {
    this.#all.push(each);
    if (this.#all.length > 1) return;
    this.schedule(() => {
      const all = this.#all;
      this.#all = []; // refusals that these cause are in the next batch
      for (const each of all) each();
    });
  }
}
