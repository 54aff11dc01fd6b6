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

/** Pauses between campaigns while the store cannot be asked, in milliseconds. */
const WHILE_UNAVAILABLE_MS = { first: 200, longest: 3_000 };
/** Pauses after work of the leader has failed, in milliseconds. */
const AFTER_FAILURE_MS = { first: 1_000, longest: 60_000 };
/** Where releases do not hand locks over, in milliseconds: long enough for all others to ask before the one that resigned. */
const AFTER_RESIGNATION_MS = 500;

/** What an election needs of its service. */
export interface ElectionParts {
  readonly engine: LockEngine;
  readonly held: LockContext;
  /** The closing for calls that hold no lock. */
  readonly closing: Closing;
  /** Whether a release hands the lock to the first that waits, so that it is not granted to who has just resigned. */
  readonly handsOver: boolean;
}

/** Work that is called in each term. */
type WorkOfTerm = (term: Leadership, lock: LockHandle) => Promise<unknown>;

/**
 * The part of this process in the election of one key. The election is the lock of that key: whoever holds it leads, and its
 * fencing token is the term.
 *
 * ```
 * campaigning ──▶ leading      the lock was granted
 * leading     ──▶ ending       the lock was lost, the process resigned, its work failed, the application closes: the signal aborts
 * ending      ──▶ campaigning  the work of the term has ended, and the lock was released
 * campaigning, ending ──▶ closed   the application closes
 * ```
 *
 * Whether it leads is computed when asked, from the deadline of the lock. `state$` follows: what it says has happened before.
 * A campaign that the store does not serve is repeated after a pause, for ever.
 */
export class Election implements Leader {
  readonly state$: Observable<LeaderState>;
  readonly #states = new ReplaySubject<LeaderState>(1);
  readonly #works: WorkOfTerm[] = [];
  /** The present term, until its lock was released. */
  #term?: Term;
  #endPause?: () => void;

  constructor(
    readonly key: string,
    private readonly options: Required<LeaderOptions>,
    private readonly parts: ElectionParts,
  ) {
    this.state$ = new Observable((observer) => notify(() => this.#states.subscribe(observer)));
    this.#tell({ status: 'campaigning' });
  }

  get isLeader(): boolean {
    return this.#term?.isOpen === true;
  }

  get term(): number | undefined {
    return this.isLeader ? this.#term!.term : undefined;
  }

  /** The fields that are logged or sent: not its internals. */
  toJSON(): { key: string; isLeader: boolean; term: number | undefined } {
    const { key, isLeader } = this;
    return { key, isLeader, term: isLeader ? this.#term!.lease.fencingToken : undefined };
  }

  [inspect.custom](): object {
    return this.toJSON();
  }

  /** @throws LockOptionsError unless these are the options that it was begun with */
  refuseOthers({ ttlMs }: Required<LeaderOptions>): void {
    if (ttlMs === this.options.ttlMs) return;
    throw new LockOptionsError(
      `The election of ${quoted(this.key)} was begun with ttlMs ${this.options.ttlMs}: got ttlMs ${ttlMs}. There is one election ` +
        'for each registration and key: give the same options wherever it is named.',
    );
  }

  /** Calls the work in each term, and in the present one. */
  whileLeader(work: WorkOfTerm): void {
    this.#works.push(work);
    if (this.isLeader) this.#start(work, this.#term!);
  }

  /**
   * Runs work under the lock if this process leads, or if this call is work of a term that ends and still has its lock.
   * @returns undefined when it does not
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

  /** The application closes: a campaign that pauses ends. One that waits is refused, and a leadership ends by its lock. */
  stopCampaigning(): void {
    this.#endPause?.();
  }

  /** The application has closed, whatever work still runs. */
  end(): void {
    this.#tell({ status: 'closed' });
    notify(() => this.#states.complete());
  }

  #tell(state: LeaderState): void {
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
        // The reason is in an event of the service. Whatever it is, there may be a leader again later.
        await this.#pause(pauseMs(WHILE_UNAVAILABLE_MS, refusals++));
        continue;
      }
      refusals = 0;
      const since = performance.now();
      const reason = await this.#lead(new Term(lock, engine));
      if (closing.phase !== 'open') break;
      this.#tell({ status: 'campaigning' });
      if (performance.now() - since > AFTER_FAILURE_MS.longest) failures = 0;
      if (reason === 'failed') await this.#pause(pauseMs(AFTER_FAILURE_MS, failures++));
      else if (reason === 'resigned' && !handsOver) await this.#pause(AFTER_RESIGNATION_MS);
    }
    this.end();
  }

  async #lead(term: Term): Promise<LeadershipEnd> {
    this.#term = term;
    this.#tell({ status: 'leading', leadership: term });
    for (const work of this.#works) this.#start(work, term);
    const reason = await term.over;
    this.#tell({ status: 'ending', leadership: term, reason });
    await term.close();
    this.#term = undefined;
    return reason;
  }

  #start(work: WorkOfTerm, term: Term): void {
    if (!term.isOpen) return;
    term.run((lock) => work(term, lock)).catch(() => term.giveUp('failed'));
  }

  /** Whether this call is work of the term, which waits for it. */
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

/** Pauses grow, and are jittered, so that processes that failed together do not try again together. */
function pauseMs({ first, longest }: typeof AFTER_FAILURE_MS, pausesBefore: number): number {
  return Math.min(longest, first * 2 ** pausesBefore) * (0.5 + Math.random());
}
