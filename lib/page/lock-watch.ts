import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Observable, takeUntil, timer, type Subscriber } from 'rxjs';
import type { LockService } from '../core/service/lock.service.js';
import { monotonic } from '../core/time/clock.js';
import { outsideOfCalls } from '../core/time/event-loop.js';
import { MOST_ROWS, viewOf, type View } from './view.js';

/** How often a list is renewed at most, in milliseconds. */
const RENEW_MS = 1_000;
/** How many times as long as the last listing took none follows it: listing takes a twentieth of the time at most. */
const REST = 20;

/** After this time a viewer has to ask again, and so to pass the guards again, in milliseconds. */
const RECHECK_MS = 300_000;

/** A list that has viewers. */
interface Topic {
  /** What keys are looked for; all if undefined. */
  readonly match: string | undefined;
  readonly viewers: Set<Subscriber<View>>;
  last?: View;
  /** When it may be renewed. */
  dueAt: number;
}

/**
 * The lists of locks of one service that viewers look at. All of them share one loop, which lists one after the other, and runs
 * only while there are viewers: what it costs the store depends neither on their number nor on how often they load the page.
 */
export class LockWatch {
  readonly #topics = new Map<string | undefined, Topic>();
  /** When the store may be asked again. */
  #restUntil = 0;
  #timer?: NodeJS.Timeout;
  #isListing = false;
  #isOver = false;

  constructor(
    private readonly locks: LockService,
    private readonly now: () => number = monotonic,
  ) {}

  /**
   * The list of the locks with matching keys, again and again, for some minutes. Completes earlier when the application closes,
   * and never fails.
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

  /** Has the topic that is due first listed when its time has come. */
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
      const list = await this.locks.list({ match, limit: MOST_ROWS });
      const endedAt = this.now();
      this.#restUntil = endedAt + REST * (endedAt - startedAt);
      return viewOf(list, await pinging, this.locks.labels());
    } catch (error) {
      return viewOf(error instanceof Error ? error : new Error(String(error)), await pinging);
    }
  }
}

/** The watches of an application, one for each of its lock services, whatever the number of its pages. */
@Injectable()
export class LockWatches implements OnModuleDestroy {
  readonly #watches = new Map<LockService, LockWatch>();
  #isOver = false;

  of(locks: LockService): LockWatch {
    let watch = this.#watches.get(locks);
    if (!watch) this.#watches.set(locks, (watch = new LockWatch(locks)));
    if (this.#isOver) watch.end(); // requests still come while work under a lock ends
    return watch;
  }

  onModuleDestroy(): void {
    this.#isOver = true;
    for (const watch of this.#watches.values()) watch.end();
  }
}
