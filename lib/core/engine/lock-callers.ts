import type { Subject } from 'rxjs';
import { failureEvent, type LockEvent } from '../../api/events.js';
import type { Lease } from '../lease/lease.js';
import { identity, type Leases } from '../lease/leases.js';
import { LockHandle } from '../lease/lock-handle.js';
import type { UnderWay } from '../time/in-flight.js';
import type { RefusalGate } from '../waiting/refusal-gate.js';
import { closed } from '../waiting/interruption.js';
import type { Callers, Waiter } from '../waiting/waiter.js';

/** Gives the calls of a service what their waiting came to, and tells its observers. Each is under way until then. */
export class LockCallers implements Callers {
  constructor(
    readonly now: () => number,
    private readonly leases: Leases,
    private readonly events: Subject<LockEvent>,
    private readonly underWay: UnderWay,
    private readonly gate: RefusalGate,
  ) {}

  granted(waiter: Waiter, lease: Lease): LockHandle | Promise<never> {
    const { key, interruption, terms } = waiter;
    if (this.events.observed) {
      this.#emit({ type: 'acquired', waitedMs: Math.round(waiter.waitedMs), ...identity(lease) });
    }
    // Both happened at once.
    if (interruption.isFinal) return this.#decline(lease, closed(key));
    if (terms.signal?.aborted) return this.#decline(lease, terms.signal.reason);
    this.underWay.end();
    return new LockHandle(lease, this.leases);
  }

  refused({ key }: Waiter, reason: unknown, reject: () => void): void {
    if (this.events.observed) this.#emit(failureEvent(key, reason));
    this.gate.settle(reason, () => {
      reject();
      this.underWay.end();
    });
  }

  async #decline(lease: Lease, reason: unknown): Promise<never> {
    try {
      await Promise.resolve(); // the queue is still at work
      await this.leases.release(lease);
      if (this.events.observed) this.#emit(failureEvent(lease.key, reason));
    } finally {
      this.underWay.end();
    }
    return this.gate.refuse(reason);
  }

  /** Not at once: observers may ask for locks, and the queue is still at work. */
  #emit(event: LockEvent | undefined): void {
    if (event) void Promise.resolve(event).then((happened) => this.events.next(happened));
  }
}
