import type { Leases } from '../lease/leases.js';
import type { HeldLocks } from './lock-context.js';
import { Interruption } from '../waiting/interruption.js';
import type { LockQueues } from '../waiting/lock-queues.js';

/** The parts of a lock service that closing it needs. */
export interface Closable {
  /** How long work under its locks may run on, in milliseconds. */
  readonly timeoutMs: number;
  readonly held: HeldLocks;
  readonly queues: LockQueues;
  readonly leases: Leases;
}

/**
 * The closing of one application. All its lock services share it: they close at once, and work that holds a lock of one of
 * them gets those of the others that it needs to finish.
 */
export class Shutdown {
  readonly #services = new Set<Closable>();
  /** Of calls that hold nothing. */
  readonly #newcomers = new Interruption();
  /** Of calls that run under a lock. */
  readonly #holders = new Interruption();
  #drained?: Promise<void>;

  join(service: Closable): void {
    this.#services.add(service);
    if (this.#newcomers.happened) service.leases.askToEnd();
  }

  leave(service: Closable): void {
    this.#services.delete(service);
  }

  /** What ends the waiting of the call that runs now. */
  get interruption(): Interruption {
    for (const { held } of this.#services) if (held.any) return this.#holders;
    return this.#newcomers;
  }

  /** Asks work under a lock to end, and refuses calls that wait and hold nothing. Locks that are free are still given out. */
  begin(): void {
    if (this.#newcomers.happened) return;
    this.#interrupt(this.#newcomers); // before any work ends: its lock is not for those who are refused
    for (const { leases } of this.#services) leases.askToEnd();
  }

  /**
   * Gives out locks to nobody but work that holds one, and waits until all such work has ended, for the longest
   * `timeoutMs` of all services at most. Nothing is held after that.
   */
  drain(): Promise<void> {
    return (this.#drained ??= this.#drain());
  }

  async #drain(): Promise<void> {
    this.begin();
    this.#newcomers.isFinal = true;
    await this.#idle();
    this.#holders.isFinal = true;
    this.#interrupt(this.#holders);
    for (const { leases } of this.#services) leases.end();
  }

  /** Waits for all services together: work under a lock of one may need the others to the end. */
  async #idle(): Promise<void> {
    const services = [...this.#services];
    const timeoutMs = Math.max(0, ...services.map((service) => service.timeoutMs));
    for (const { leases } of services) leases.announceWait(timeoutMs);
    if (timeoutMs === 0) return; // at once, also where a test has faked the timers
    const allIdle = async () => {
      for (let busy; (busy = services.find(({ leases }) => !leases.isIdle));) await busy.leases.idle();
    };
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => (timer = setTimeout(resolve, timeoutMs)));
    await Promise.race([allIdle(), over]);
    clearTimeout(timer);
  }

  #interrupt(interruption: Interruption): void {
    interruption.happened = true;
    for (const { queues } of this.#services) queues.interrupt(interruption);
  }
}
