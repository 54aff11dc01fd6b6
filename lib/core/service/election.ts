import { inspect } from 'node:util';
import { Observable, ReplaySubject } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';
import type { Leader, LeaderOptions, LeaderState, Leadership, LeadershipEnd } from '../../api/leader.js';
import { quoted } from '../../api/printable.js';
import type { LockEngine } from '../locks/lock-engine.js';
import type { LockHandle } from '../locks/lock-handle.js';
import { MAX_TIMER_MS } from '../options/checks.js';
import { notify } from '../time/notify.js';
import type { Closing } from '../locks/waiter.js';
import type { LockContext } from './lock-context.js';
import { Term, type LeaderWork } from './term.js';

/** Pauses between campaigns while the store is unavailable, in milliseconds. */
const WHILE_UNAVAILABLE_MS = { first: 200, longest: 3_000 };
/** Pauses after work of the leader has failed, in milliseconds. */
const AFTER_FAILURE_MS = { first: 1_000, longest: 60_000 };
/** The pause after a resignation, in milliseconds, if releases do not hand locks over: meanwhile all other processes ask. */
const AFTER_RESIGNATION_MS = 500;

export interface ElectionParts {
  readonly engine: LockEngine;
  readonly held: LockContext;
  /** The closing for calls that hold no lock. */
  readonly closing: Closing;
  /** Whether a release hands the lock over to another process that waits, so that this one does not get it again. */
  readonly handsOver: boolean;
}

type WorkOfTerm = (term: Leadership, lock: LockHandle) => Promise<unknown>;

/**
 * The part of this process in the election of one key. The election is the lock of that key: its holder leads, and its fencing token is the
 * term.
 *
 * ```
 * campaigning ──▶ leading      the lock was granted
 * leading     ──▶ ending       the lock was lost, the process resigned, its work failed, the application closes: the signal aborts
 * ending      ──▶ campaigning  the work of the term has ended, and the lock was released
 * campaigning, ending ──▶ closed   the application closes
 * ```
 *
 * `isLeader` computes from the deadline of the lock whether this process leads. `state$` reports each change afterwards. If the store refuses a
 * campaign, the election repeats it after a pause, without end.
 */
export class Election implements Leader {
  readonly state$: Observable<LeaderState>;
  readonly #states = new ReplaySubject<LeaderState>(1);
  readonly #works: WorkOfTerm[] = [];
  /** The current term, until its lock is released. */
  #term?: Term;
  #endPause?: () => void;

  constructor(
    readonly key: string,
    private readonly options: Required<LeaderOptions>,
    private readonly parts: ElectionParts,
  ) {
    this.state$ = new Observable((observer) => notify(() => this.#states.subscribe(observer)));
    this.#report({ status: 'campaigning' });
  }

  get isLeader(): boolean {
    return this.#term?.isOpen === true;
  }

  get term(): number | undefined {
    return this.isLeader ? this.#term!.term : undefined;
  }

  /** The fields for logs and messages, without internals. */
  toJSON(): { key: string; isLeader: boolean; term: number | undefined } {
    const { key, isLeader } = this;
    return { key, isLeader, term: isLeader ? this.#term!.lease.fencingToken : undefined };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }

  /** @throws LockOptionsError unless the election began with the same options */
  refuseOthers({ ttlMs }: Required<LeaderOptions>): void {
    if (ttlMs === this.options.ttlMs) return;
    throw new LockOptionsError(
      `The election of ${quoted(this.key)} was started with ttlMs ${this.options.ttlMs}: got ttlMs ${ttlMs}. There is one election ` +
        'for each registration and key: use the same options everywhere.',
    );
  }

  /** Runs the work in each term, and in the current one. */
  whileLeader(work: WorkOfTerm): void {
    this.#works.push(work);
    if (this.isLeader) this.#start(work, this.#term!);
  }

  /**
   * Runs work under the lock if this process leads. Work of an ending term that still has its lock can do the same.
   * @returns undefined if it does not run
   */
  run<T>(work: LeaderWork<T>): Promise<T> | undefined {
    const term = this.#term;
    return term && (term.isOpen || (term.isHeld && this.#isWorkOf(term))) ? term.run(work) : undefined;
  }

  async resign(): Promise<void> {
    const term = this.#term;
    if (!term) return;
    term.giveUp('resigned');
    if (this.#isWorkOf(term)) return;
    await term.over;
    await term.close();
  }

  /** Begins to campaign. Called once. */
  begin(): void {
    void this.#campaign();
  }

  /** The application closes: ends the pause of a campaign. The closing also refuses a waiting campaign, and ends a leadership. */
  stopCampaigning(): void {
    this.#endPause?.();
  }

  /** The application has closed, although work may still run. */
  end(): void {
    this.#report({ status: 'closed' });
    notify(() => this.#states.complete());
  }

  #report(state: LeaderState): void {
    notify(() => this.#states.next(state));
  }

  async #campaign(): Promise<void> {
    const { engine, closing, handsOver } = this.parts;
    const request = { ttlMs: this.options.ttlMs, waitMs: MAX_TIMER_MS, watchdog: true, cohort: false };
    let [refusals, failures] = [0, 0];
    while (closing.phase === 'open') {
      let lock: LockHandle;
      try {
        lock = await engine.acquire(this.key, request, closing, this.key);
      } catch {
        // An event of the service has the reason. A later campaign may succeed.
        await this.#pause(pauseMs(WHILE_UNAVAILABLE_MS, refusals++));
        continue;
      }
      refusals = 0;
      const since = performance.now();
      const reason = await this.#lead(new Term(lock, engine));
      if (closing.phase !== 'open') break;
      this.#report({ status: 'campaigning' });
      if (performance.now() - since > AFTER_FAILURE_MS.longest) failures = 0;
      if (reason === 'failed') await this.#pause(pauseMs(AFTER_FAILURE_MS, failures++));
      else if (reason === 'resigned' && !handsOver) await this.#pause(AFTER_RESIGNATION_MS);
    }
    this.end();
  }

  async #lead(term: Term): Promise<LeadershipEnd> {
    this.#term = term;
    this.#report({ status: 'leading', leadership: term });
    for (const work of this.#works) this.#start(work, term);
    const reason = await term.over;
    this.#report({ status: 'ending', leadership: term, reason });
    await term.close();
    this.#term = undefined;
    return reason;
  }

  #start(work: WorkOfTerm, term: Term): void {
    if (!term.isOpen) return;
    term.run((lock) => work(term, lock)).catch(() => term.giveUp('failed'));
  }

  /** Whether this call is work of the term: the term waits for it. */
  #isWorkOf(term: Term): boolean {
    return this.parts.held.isUnder(term.lease);
  }

  async #pause(ms: number): Promise<void> {
    if (this.parts.closing.phase !== 'open') return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** Pauses grow, and each is random, so that processes that failed together do not try again together. */
function pauseMs({ first, longest }: typeof AFTER_FAILURE_MS, pausesBefore: number): number {
  return Math.min(longest, first * 2 ** pausesBefore) * (0.5 + Math.random());
}
