import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Observable, takeUntil, timer, type Subscriber } from 'rxjs';
import type { LockService } from '../core/service/lock.service.js';
import { monotonic } from '../core/time/clock.js';
import { outsideOfCalls } from '../core/time/event-loop.js';
import { MAX_ROWS, viewOf, type View } from './view.js';

/** Minimum time between two renewals of a list, in milliseconds. */
const RENEW_MS = 1_000;
/** The pause after a listing, as a multiple of its duration: so listing takes at most a twentieth of the time. */
const REST = 20;

/** Milliseconds after which a viewer must connect again, and so pass the guards again. */
const RECHECK_MS = 300_000;

/** A list that has viewers. */
interface Topic {
  /** The pattern of the keys; undefined for all. */
  readonly match: string | undefined;
  readonly viewers: Set<Subscriber<View>>;
  last?: View;
  /** The time from which it may be renewed. */
  dueAt: number;
}

/**
 * Renews the lists of locks of one service for their viewers. One loop renews all lists, one after the other, while there are
 * viewers. So neither the number of viewers nor their page loads change the load on the store.
 */
export class LockWatch {
  readonly #topics = new Map<string | undefined, Topic>();
  /** The time from which the store may be asked again. */
  #restUntil = 0;
  #timer?: NodeJS.Timeout;
  #isListing = false;
  #isOver = false;

  constructor(
    private readonly locks: LockService,
    private readonly now: () => number = monotonic,
  ) {}

  /**
   * Emits the list of the locks with matching keys, and each renewal, for some minutes. Completes earlier if the application closes.
   * Never fails.
   */
  see(match?: string): Observable<View> {
    const views = new Observable<View>((viewer) => {
      if (this.#isOver) return viewer.complete();
      const topic = this.#topicOf(match);
      topic.viewers.add(viewer);
      if (topic.last) viewer.next(topic.last);
      this.#plan();
      return () => this.#leave(topic, viewer);
    });
    return views.pipe(takeUntil(timer(RECHECK_MS)));
  }

  /** Ends all streams: Nest waits for open connections when it closes. */
  end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    for (const { viewers } of this.#topics.values()) for (const viewer of [...viewers]) viewer.complete();
  }

  #topicOf(match: string | undefined): Topic {
    let topic = this.#topics.get(match);
    if (!topic) this.#topics.set(match, (topic = { match, viewers: new Set(), dueAt: 0 }));
    return topic;
  }

  #leave(topic: Topic, viewer: Subscriber<View>): void {
    topic.viewers.delete(viewer);
    if (topic.viewers.size === 0) this.#topics.delete(topic.match);
    if (this.#topics.size === 0) clearTimeout(this.#timer);
  }

  /** Sets the timer for the topic that is due first. */
  #plan(): void {
    clearTimeout(this.#timer);
    if (this.#isListing || this.#isOver) return;
    const [first] = [...this.#topics.values()].sort((a, b) => a.dueAt - b.dueAt);
    if (!first) return;
    const waitMs = Math.max(first.dueAt, this.#restUntil) - this.now();
    const delayMs = Math.max(0, waitMs);
    this.#timer = outsideOfCalls(() => setTimeout(() => void this.#list(first), delayMs)); // it serves all viewers
  }

  async #list(topic: Topic): Promise<void> {
    this.#isListing = true;
    const view = await this.#look(topic.match);
    this.#isListing = false;
    topic.last = view;
    topic.dueAt = this.now() + RENEW_MS;
    for (const viewer of [...topic.viewers]) viewer.next(view);
    this.#plan();
  }

  async #look(match: string | undefined): Promise<View> {
    const startedAt = this.now();
    const pinging = this.locks.ping();
    try {
      const list = await this.locks.list({ match, limit: MAX_ROWS });
      const endedAt = this.now();
      this.#restUntil = endedAt + REST * (endedAt - startedAt);
      return viewOf(list, await pinging, this.locks.labels());
    } catch (error) {
      return viewOf(error instanceof Error ? error : new Error(String(error)), await pinging);
    }
  }
}

/** The watches of an application: one for each lock service, for any number of pages. */
@Injectable()
export class LockWatches implements OnModuleDestroy {
  readonly #watches = new Map<LockService, LockWatch>();
  #isOver = false;

  of(locks: LockService): LockWatch {
    let watch = this.#watches.get(locks);
    if (!watch) this.#watches.set(locks, (watch = new LockWatch(locks)));
    if (this.#isOver) watch.end(); // requests still arrive while work under a lock is ending
    return watch;
  }

  onModuleDestroy(): void {
    this.#isOver = true;
    for (const watch of this.#watches.values()) watch.end();
  }
}
