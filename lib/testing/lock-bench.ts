import { LockOptionsError, type LockLostReason } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { processName } from '../compose/process-name.js';
import { LONGEST_TTL_MS, type AcquireOutcome, type ReleaseOutcome } from '../core/backend/lock-backend.js';
import { ownerSequence } from '../core/engine/lock-engine.js';
import { checkKey } from '../core/keys/key.js';
import { count, oneOf, refuseUnknown } from '../core/options/checks.js';
import { DEFAULT_REGISTRATION, resolveServiceOptions, SERVICE_CHECKS } from '../core/options/service-options.js';
import { LockService } from '../core/service/lock.service.js';
import { Shutdown } from '../core/service/shutdown.js';
import { monotonic } from '../core/time/clock.js';
import { loopTurn } from '../core/time/event-loop.js';
import { BenchBackend } from './bench-backend.js';
import { BenchEngine, ELSEWHERE, type JournalEntry, type Refusal } from './bench-engine.js';

/** Options of a `LockBench`: those of a registration, whatever keeps its locks. */
export interface LockBenchOptions extends LockServiceOptions {
  /** Name of the registration that it stands in for. @default 'default' */
  name?: string;
  /** As in a registration. @default 0: `close()` does not wait for a lock that a test forgot to release */
  shutdownTimeoutMs?: number;
}

/** A lock that another process holds, as far as the code under test can see. */
export interface LockElsewhere extends AsyncDisposable {
  readonly key: string;
  /** The owner value of its holder: that of `LockContendedError.holder`. */
  readonly owner: string;
  /** Settles when a waiting call of the code under test, if there is one, has the lock. Further calls do nothing. */
  release(): Promise<void>;
}

const CHECK_REFUSAL = oneOf('contended', 'unavailable');
const CHECK_TIMES = count(1, 1_000_000);
const CHECK_REASON = oneOf('expired', 'stolen', 'unavailable', 'stalled');

/** Locks in memory for a test, which makes their troubles, contention, outages and losses, and looks at what happened to them. */
export class LockBench {
  /** The service of the code under test: on memory, and in all else as in production. */
  readonly locks: LockService;
  readonly #backend = new BenchBackend(monotonic);
  readonly #nextOwner = ownerSequence(ELSEWHERE);
  #engine!: BenchEngine;

  /** @throws LockOptionsError */
  constructor(options?: LockBenchOptions);
  /** @internal @param shutdown that of the application */
  constructor(options: LockBenchOptions | undefined, shutdown: Shutdown);
  constructor({ name = DEFAULT_REGISTRATION, ...options }: LockBenchOptions = {}, shutdown = new Shutdown()) {
    refuseUnknown(options, ['name', ...Object.keys(SERVICE_CHECKS)]);
    this.locks = LockService.of({
      backend: this.#backend,
      options: resolveServiceOptions({ shutdownTimeoutMs: 0, ...options }),
      registration: name,
      now: monotonic,
      processName: processName(),
      shutdown,
      engineOf: (parts) => (this.#engine = new BenchEngine(parts)),
    });
  }

  /** What happened to the locks of the code under test, in order. Empty it with `journal.length = 0`. */
  get journal(): JournalEntry[] {
    return this.#engine.journal;
  }

  /** The keys that are held, by the code under test or elsewhere. */
  get heldKeys(): string[] {
    return [...this.#engine.heldKeys, ...this.#backend.elsewhere];
  }

  /**
   * Takes the lock for another process, which keeps it until it is released: the code under test finds it held, and waits.
   * @throws LockOptionsError when it is held
   */
  async holdElsewhere(key: string): Promise<LockElsewhere> {
    checkKey(key);
    const backend = this.#backend;
    const request = { key, owner: this.#nextOwner(), ttlMs: LONGEST_TTL_MS };
    const outcome = await new Promise<AcquireOutcome>((resolve) => backend.acquire(request, resolve));
    if (outcome.status !== 'acquired') {
      throw new LockOptionsError(
        `Lock "${key}" cannot be held elsewhere: it is held. Do so before the code under test.`,
      );
    }
    const { grant } = outcome;
    backend.elsewhere.add(key);
    const release = async () => {
      const { status } = await new Promise<ReleaseOutcome>((resolve) => backend.release(grant, resolve));
      if (status !== 'released') return; // by force, before
      backend.elsewhere.delete(key);
      backend.wake(key);
      await loopTurn();
    };
    return { key, owner: grant.owner, release, [Symbol.asyncDispose]: release };
  }

  /**
   * Refuses the next calls for the lock at once, with the error that they would get in production in the end: `contended` that
   * another process kept it for all of `waitMs`, `unavailable` that the store could not be asked. Not a call that holds it.
   * @param times how many calls are refused; default 1
   * @throws LockOptionsError
   */
  refuse(key: string, reason: Refusal, { times = 1 }: { times?: number } = {}): void {
    checkKey(key);
    CHECK_REFUSAL('reason', reason);
    CHECK_TIMES('times', times);
    this.#engine.refuseNext(key, reason, times);
  }

  /**
   * Ends the lease of a lock that the code under test holds: its signal aborts at once, and the call rejects with
   * `LockLostError` when its work has settled. Whatever the reason, the lock is free then.
   * @param reason why it is lost, as `LockLostError.reason` says; default `expired`
   * @throws LockOptionsError when the code under test does not hold it
   */
  lose(key: string, reason: Exclude<LockLostReason, 'released' | 'shutdown'> = 'expired'): void {
    CHECK_REASON('reason', reason);
    const lease = this.#engine.leaseOf(key);
    void this.#backend.forceRelease(key); // at once, as what the signal aborts may ask for it again
    this.#engine.lose(lease, reason);
  }
}
