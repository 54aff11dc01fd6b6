import type {
  AcquireOutcome,
  AcquireRequest,
  Grant,
  ReleaseOutcome,
  Releasing,
  Taken,
  WaitListener,
  WaitQueue,
} from '../core/backend/lock-backend.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';

/**
 * Locks in memory as if there were another process, which holds locks as a test wants it. So it has a wait queue: calls of
 * the code under test learn at once, and under fake timers, that the other one has released a lock.
 */
export class BenchBackend extends MemoryBackend {
  /** The keys whose lock the other process holds. */
  readonly elsewhere = new Set<string>();
  #listener?: WaitListener;
  /** The tickets of the bids that wait, with the keys that they wait for. */
  readonly #waiting = new Map<string, string>();

  readonly waitQueue: WaitQueue = {
    handsOver: false,
    isListening: () => this.#listener !== undefined,
    listen: (_, listener) => void (this.#listener = listener), // before a release wakes: it is answered later than the attempt
    checkListening: () => {},
    leave: (_, { ticket }) => void this.#waiting.delete(ticket),
  };

  override acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    const { key, place } = request;
    if (place) this.#waiting.set(place.ticket, key);
    super.acquire(request, (outcome) => {
      if (place && outcome.status === 'acquired') this.#waiting.delete(place.ticket);
      done(outcome.status === 'contended' ? { ...outcome, queued: place !== undefined } : outcome);
    });
  }

  /** Also by a parcel, or by its adopter: calls that wait have a bid of their own then. */
  override release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    super.release(grant, how, (outcome) => {
      done(outcome);
      if (outcome.status === 'released') this.wake(grant.key);
    });
  }

  override async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const taken = await super.forceRelease(key, from);
    if (taken) this.elsewhere.delete(key);
    this.wake(key);
    return taken;
  }

  /** Has the bids for the key ask again. */
  wake(key: string): void {
    for (const [ticket, wanted] of [...this.#waiting]) if (wanted === key) this.#listener?.onTurn(ticket);
  }
}
