import type { LockBackend } from '../backend/lock-backend.js';
import type { LockEngine } from '../locks/lock-engine.js';
import { NodeError } from '../../api/errors.js';
import { MAX_TIMER_MS } from '../options/checks.js';
import { inTime } from '../time/time-limit.js';
import { Closing } from '../locks/waiter.js';
import type { Election } from './election.js';

/** How long a store may take to close, in milliseconds, on top of the time for `ATTEMPTS_TO_CLOSE` attempts. */
const CLOSE_MS = 10_000;
/** An attempt in flight, its undo, the releases in flight, their last retry, and the end of the connections. */
const ATTEMPTS_TO_CLOSE = 5;

/** The parts of one lock service that a shutdown closes. */
export interface Closable {
  /** How long work under its locks may run on, in milliseconds. */
  readonly timeoutMs: number;
  readonly engine: LockEngine;
  /** Its elections, by key. */
  readonly elections: ReadonlyMap<string, Election>;
}

/**
 * The closing of one application. All its lock services share it, and close together: work that holds a lock of one service may need locks of
 * the others to finish.
 */
export class Shutdown {
  readonly #services = new Set<Closable>();
  /** The closing for calls that hold no lock. */
  readonly newcomers = new Closing();
  /** The closing for calls that run under a lock. */
  readonly holders = new Closing();
  #drained?: Promise<void>;

  add(service: Closable): void {
    this.#services.add(service);
    if (this.newcomers.phase !== 'open') service.engine.leases.askToEnd();
  }

  remove(service: Closable): void {
    this.#services.delete(service);
  }

  /** Asks work under a lock to end, and refuses waiting calls that hold no lock. Calls can still acquire free locks. */
  begin(): void {
    if (this.newcomers.phase !== 'open') return;
    this.#advance(this.newcomers, 'waiting-ends'); // before any work ends: its lock must not go to a call that will be refused
    for (const { engine, elections } of this.#services) {
      engine.leases.askToEnd();
      for (const election of elections.values()) election.stopCampaigning();
    }
  }

  /**
   * Refuses new calls that hold no lock, and waits until all work under a lock has ended. It waits at most for the longest `timeoutMs` of all
   * services. Then no lock is held any more.
   */
  drain(): Promise<void> {
    return (this.#drained ??= this.#drain());
  }

  async #drain(): Promise<void> {
    this.begin();
    this.newcomers.phase = 'closed';
    await this.#idle();
    this.#advance(this.holders, 'closed');
    for (const { engine } of this.#services) engine.leases.end();
  }

  /** Waits for all services together: work under a lock of one may need the others to the end. */
  async #idle(): Promise<void> {
    const services = [...this.#services];
    const timeoutMs = Math.max(0, ...services.map((service) => service.timeoutMs));
    for (const { engine } of services) engine.leases.announceWait(timeoutMs);
    if (timeoutMs === 0) return; // at once, even if a test has faked the timers
    const allIdle = async () => {
      for (let busy; (busy = services.find(({ engine }) => !engine.leases.isIdle));)
        await busy.engine.leases.whenIdle();
    };
    await inTime(allIdle(), timeoutMs, () => {});
  }

  #advance(closing: Closing, phase: Closing['phase']): void {
    closing.phase = phase;
    for (const { engine } of this.#services) engine.refuseWaiting(closing);
  }
}

/**
 * Closes a store, and waits for that up to a time limit.
 * @param idle settles when nothing is in flight any more
 * @throws NodeError when the time is over; or the error of the store
 */
export async function closeStore(
  backend: Pick<LockBackend, 'attemptTimeoutMs' | 'close'>,
  idle?: Promise<void>,
): Promise<void> {
  const limitMs = Math.min(CLOSE_MS + ATTEMPTS_TO_CLOSE * backend.attemptTimeoutMs(), MAX_TIMER_MS);
  const closing = async () => {
    await idle;
    await backend.close();
  };
  await inTime(closing(), limitMs, () => {
    throw new NodeError('the store', `it has not closed within ${limitMs} ms`, 'Its connections may still be open.');
  });
}
