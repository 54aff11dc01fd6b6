import type {
  AcquireOutcome,
  AcquireRequest,
  Grant,
  Holding,
  Place,
  ReleaseOutcome,
  Releasing,
  Taken,
  WaitListener,
  WaitQueue,
} from '../../lib/testing/index.js';
import { MemoryBackend } from '../../lib/stores/memory/memory.backend.js';

/** Locks in memory with a queue in which nobody is overtaken: the first in the queue is woken, and asks again. */
export class QueuedMemory extends MemoryBackend {
  readonly #places = new Map<string, Place[]>();
  readonly #listeners = new Map<string, WaitListener>();

  override readonly waitQueue: WaitQueue = {
    handsOver: false,
    isListening: (key) => this.#listeners.has(key),
    listen: (key, listener) => void this.#listeners.set(key, listener),
    checkListening: () => {},
    leave: (key, { ticket }) => this.#leave(key, ticket),
  };

  override acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    const { key, place, owner } = request;
    const before = this.placesBefore(key, place);
    const others = this.placesBehind(key, place).length > 0 ? [] : request.others;
    if (before.length > 0) {
      this.#take(key, place);
      return void Promise.resolve().then(() => done({ status: 'contended', queued: place !== undefined }));
    }
    super.acquire({ ...request, others, place: undefined }, (outcome) => {
      if (outcome.status === 'contended') this.#take(key, place);
      if (outcome.status === 'acquired') this.#leave(key, place?.ticket ?? owner);
      done(outcome.status === 'contended' ? { ...outcome, queued: place !== undefined } : outcome);
    });
  }

  override release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    super.release(grant, how, (outcome) => {
      this.#wake(grant.key);
      done(outcome);
    });
  }

  override async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const taken = await super.forceRelease(key, from);
    this.#wake(key);
    return taken;
  }

  override async inspect(key: string): Promise<Holding | undefined> {
    const holding = await super.inspect(key);
    const waiting = this.#placesOf(key).map(({ ticket, calls }) => ({ ticket, calls }));
    return holding && { ...holding, waiting };
  }

  /** The places that are served before this one, or before an attempt without a place. */
  placesBefore(key: string, place?: Place): Place[] {
    return this.#placesOf(key).filter(
      ({ ticket, arrivedAt }) => ticket !== place?.ticket && arrivedAt <= (place?.arrivedAt ?? Infinity),
    );
  }

  placesBehind(key: string, place?: Place): Place[] {
    const before = this.placesBefore(key, place);
    return this.#placesOf(key).filter((each) => each.ticket !== place?.ticket && !before.includes(each));
  }

  #placesOf(key: string): Place[] {
    return this.#places.get(key) ?? [];
  }

  #take(key: string, place?: Place): void {
    if (!place) return;
    const others = this.#placesOf(key).filter(({ ticket }) => ticket !== place.ticket);
    const places = [...others, place].sort((a, b) => a.arrivedAt - b.arrivedAt);
    this.#places.set(key, places);
  }

  #leave(key: string, left: string): void {
    const places = this.#placesOf(key).filter(({ ticket }) => ticket !== left);
    this.#places.set(key, places);
    this.#wake(key);
  }

  /** Later, because a listener is never called within a call of the queue. */
  #wake(key: string): void {
    queueMicrotask(() => {
      const [first] = this.#placesOf(key);
      if (first) this.#listeners.get(key)?.onTurn(first.ticket);
    });
  }
}
