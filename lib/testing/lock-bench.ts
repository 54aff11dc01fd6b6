import { Logger } from '@nestjs/common';
import { LockOptionsError, type LockLostReason } from '../api/errors.js';
import type { LockServiceOptions, PermitCount } from '../api/options.js';
import { quoted } from '../api/printable.js';
import { processName } from '../compose/process-name.js';
import {
  EXCLUSIVE,
  LONGEST_TTL_MS,
  type AcquireOutcome,
  type Hold,
  type ReleaseOutcome,
} from '../core/backend/lock-backend.js';
import { ownerSequence } from '../core/locks/lock-engine.js';
import { checkKey } from '../core/keys/key.js';
import { permitsOf } from '../core/options/call-options.js';
import { count, oneOf, refuseUnknown } from '../core/options/checks.js';
import { CHECKS } from '../core/options/option-rows.js';
import { DEFAULT_REGISTRATION, resolveServiceOptions } from '../core/options/service-options.js';
import { callSite } from '../core/service/lock-order.js';
import { LockService } from '../core/service/lock.service.js';
import { Shutdown } from '../core/service/shutdown.js';
import { monotonic } from '../core/time/clock.js';
import { yieldToEventLoop } from '../core/time/event-loop.js';
import { BenchBackend } from './bench-backend.js';
import { BenchEngine, ELSEWHERE, type JournalEntry, type Refusal } from './bench-engine.js';

/** Options of a `LockBench`: the options of a registration that do not depend on the store. */
export interface LockBenchOptions extends LockServiceOptions {
  /** Name of the registration that the bench replaces. @default 'default' */
  name?: string;
  /** As for a registration, in milliseconds. @default 0: `close()` does not wait for a lock that a test forgot to release */
  shutdownTimeoutMs?: number;
}

/** A lock, or permits, that a pretended other process holds. */
export interface LockElsewhere extends AsyncDisposable {
  readonly key: string;
  /** The owner value of its holder, as in `LockContendedError.holder`. */
  readonly owner: string;
  /** Releases the lock. If a call of the code under test waits, the promise resolves once that call has it. Further calls do nothing. */
  release(): Promise<void>;
}

const CHECK_REFUSAL = oneOf('contended', 'unavailable');
const CHECK_TIMES = count(1, 1_000_000);
const CHECK_REASON = oneOf('expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed');

/** Locks in memory for a test. The test can cause contention, outages and losses, and check what happened to the locks. */
export class LockBench {
  /** The service for the code under test: its locks are in memory, otherwise it is the same as in production. */
  readonly locks: LockService;
  readonly #backend = new BenchBackend(monotonic);
  readonly #nextOwner = ownerSequence(ELSEWHERE);
  #engine!: BenchEngine;

  /** @throws LockOptionsError */
  constructor(options?: LockBenchOptions);
  /** @internal @param shutdown the shutdown of the application */
  constructor(options: LockBenchOptions | undefined, shutdown: Shutdown);
  constructor({ name = DEFAULT_REGISTRATION, ...options }: LockBenchOptions = {}, shutdown = new Shutdown()) {
    refuseUnknown(options, ['name', ...Object.keys(CHECKS.service)]);
    this.locks = LockService.of({
      backend: this.#backend,
      options: resolveServiceOptions({ shutdownTimeoutMs: 0, ...options }),
      registration: name,
      now: monotonic,
      processName: processName(),
      shutdown,
      engineOf: (parts) => (this.#engine = new BenchEngine(parts)),
    });
    this.locks.events$.subscribe({ complete: () => this.#reportUnused() }); // once the service has closed
  }

  /** What happened to the locks of the code under test, in order. Empty it with `journal.length = 0`. */
  get journal(): JournalEntry[] {
    return this.#engine.journal;
  }

  /** The keys that the code under test or another process holds. */
  get heldKeys(): string[] {
    return [...new Set([...this.#engine.heldKeys, ...this.#backend.elsewhere.values()])];
  }

  /**
   * Takes the lock as another process would, until you release it: the code under test finds it held, and waits.
   * @param permits the limit of the key, and how many of its permits are taken (default 1); the other permits stay free
   * @throws LockOptionsError if it is already held, or too few permits are free
   */
  async holdElsewhere(key: string, permits?: PermitCount): Promise<LockElsewhere> {
    checkKey(key);
    const backend = this.#backend;
    const hold = permits === undefined ? EXCLUSIVE : onlyPermits(permits);
    const request = { key, hold, owner: this.#nextOwner(), ttlMs: LONGEST_TTL_MS };
    const outcome = await new Promise<AcquireOutcome>((resolve) => backend.acquire(request, resolve));
    if (outcome.status !== 'acquired') {
      throw new LockOptionsError(
        `Lock ${quoted(key)} cannot be held elsewhere: it is already held${permits ? ', or too few permits are free' : ''}. Call holdElsewhere before the code under test takes the lock.`,
      );
    }
    const { grant } = outcome;
    backend.elsewhere.set(grant.owner, key);
    const release = async () => {
      const { status } = await new Promise<ReleaseOutcome>((resolve) => backend.release(grant, {}, resolve));
      if (status !== 'released') return; // a forced release came first
      backend.elsewhere.delete(grant.owner);
      await yieldToEventLoop();
    };
    return { key, owner: grant.owner, release, [Symbol.asyncDispose]: release };
  }

  /**
   * Refuses the next calls for the lock at once, with the error that they would get in production. `contended`: another process kept
   * the lock for the whole `waitMs`. `unavailable`: the store could not be reached. A call that already holds the lock is not refused.
   * If no call used a refusal, the test did not test what it should. Then the bench logs an error with the key and the line of the
   * refusal when the application closes.
   * @param times how many calls are refused; default 1
   * @throws LockOptionsError
   */
  refuse(key: string, reason: Refusal, { times = 1 }: { times?: number } = {}): void {
    checkKey(key);
    CHECK_REFUSAL('reason', reason);
    CHECK_TIMES('times', times);
    const at = callSite(this.refuse); // oxlint-disable-line typescript/unbound-method -- for the stack
    this.#engine.refusals.push({ key, reason, times, left: times, at });
  }

  /**
   * Ends the lease of a lock that the code under test holds. Its signal aborts at once, and the call rejects with `LockLostError` once
   * its work has settled. Whatever the reason, the lock is free afterwards. If the code under test holds permits of the key, it loses
   * all of them.
   * @param reason the `LockLostError.reason`; default `expired`
   * @throws LockOptionsError if the code under test does not hold it
   */
  lose(key: string, reason: Exclude<LockLostReason, 'released' | 'shutdown'> = 'expired'): void {
    CHECK_REASON('reason', reason);
    const leases = this.#engine.heldLeases(key);
    // First: the code that the signal aborts may request the lock again at once.
    for (const { grant } of leases) void this.#backend.forceRelease(key, grant.owner);
    for (const lease of leases) this.#engine.lose(lease, reason);
  }

  /** Logs an error instead of throwing it: Nest only logs errors of shutdown hooks, so throwing could not fail a test. */
  #reportUnused(): void {
    for (const { key, reason, times, left, at } of this.#engine.refusals) {
      const planned = times === 1 ? 'a call' : `${times} calls`;
      const refused = left === times ? 'no call requested that lock' : `only ${times - left} requested that lock`;
      new Logger('LockBench').error(
        `bench.refuse(${quoted(key)}, '${reason}') should refuse ${planned}, but ${refused}. ` +
          `Correct the key, or remove the refusal (${at}).`,
      );
    }
  }
}

/** @throws LockOptionsError */
function onlyPermits(permits: PermitCount): Hold {
  const { hold, rest } = permitsOf(permits);
  refuseUnknown(rest, []);
  return hold as Hold; // without a policy, this is the whole hold
}
