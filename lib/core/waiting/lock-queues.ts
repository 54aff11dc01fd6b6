import type { HandOver, ReleaseOutcome, WaitListener } from '../backend/lock-backend.js';
import type { Lease } from '../lease/lease.js';
import { ownerSequence } from '../backend/owner.js';
import type { LeaseListener } from '../lease/leases.js';
import type { Contender } from './contender.js';
import type { Interruption } from './interruption.js';
import { LockQueue, type QueueDuties } from './lock-queue.js';
import type { Waiter } from './waiter.js';

/** The queues of all keys that calls of this process want or hold. */
export class LockQueues implements WaitListener, LeaseListener {
  readonly #queues = new Map<string, LockQueue>();
  readonly #contenders = new Map<string, Contender>();
  readonly #duties: QueueDuties;

  constructor(duties: Omit<QueueDuties, 'nextOwner' | 'contenders' | 'listener' | 'onEmpty'>, processName: string) {
    this.#duties = {
      ...duties,
      nextOwner: ownerSequence(processName),
      contenders: this.#contenders,
      listener: this,
      onEmpty: (key) => this.#queues.delete(key),
    };
  }

  /** How much it keeps: nothing unless keys are held or waited for in this process. */
  get size(): number {
    return this.#queues.size + this.#contenders.size;
  }

  /** What this process holds of the key. */
  lease(key: string): Lease | undefined {
    return this.#queues.get(key)?.lease;
  }

  /** How many calls of this process wait for the key. */
  waiting(key: string): number {
    return this.#queues.get(key)?.size ?? 0;
  }

  /** The waiter is granted a lease, or refused, sooner or later. */
  join(waiter: Waiter): void {
    const { key } = waiter;
    let queue = this.#queues.get(key);
    if (!queue) this.#queues.set(key, (queue = new LockQueue(key, this.#duties)));
    try {
      queue.join(waiter);
    } catch (bug) {
      if (!waiter.isSettled) waiter.refuse(bug);
    }
  }

  /**
   * Passes the lock on to the next call of this process, or gives it back to the store.
   * @param done called with what became of the release
   * @returns whether it was passed on
   */
  giveBack(lease: Lease, done: (outcome: ReleaseOutcome) => void): boolean {
    return this.#queues.get(lease.key)!.giveBack(lease, done);
  }

  onLost(lease: Lease): void {
    this.#queues.get(lease.key)?.lost(lease);
  }

  /** Refuses the calls whose waiting it ends. */
  interrupt(interruption: Interruption): void {
    for (const queue of [...this.#queues.values()]) queue.interrupt(interruption);
  }

  onTurn(ticket?: string): void {
    if (ticket !== undefined) this.#contenders.get(ticket)?.wake();
    else for (const contender of [...this.#contenders.values()]) contender.wake();
  }

  onHandOver(ticket: string, handOver: HandOver): void {
    this.#contenders.get(ticket)?.wake(handOver);
  }

  onTaken(key: string, owner: string): void {
    this.#queues.get(key)?.suspect(owner);
  }
}
