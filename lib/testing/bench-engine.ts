import {
  LockContendedError,
  LockOptionsError,
  LockUnavailableError,
  NodeError,
  type LockLostReason,
} from '../api/errors.js';
import { failureEvent, type HeldAs } from '../api/events.js';
import type { HoldOptions } from '../api/options.js';
import { parseOwner } from '../api/holder.js';
import { quoted } from '../api/printable.js';
import { splitScope } from '../core/keys/scope.js';
import { LockEngine, type EngineParts } from '../core/locks/lock-engine.js';
import { heldAs, type Lease } from '../core/locks/lease.js';
import type { LockHandle } from '../core/locks/lock-handle.js';
import { listed } from '../core/locks/lock-set-handle.js';
import type { Closing, WaitRequest } from '../core/locks/waiter.js';

/** How a call is refused. */
export type Refusal = 'contended' | 'unavailable';

/** An entry of `LockBench.journal`. */
export type JournalEntry =
  /**
   * A call got the lock, with these options. The entry has `holdMs` and `maxHoldMs` only if they were set, `mode` unless it is exclusive, and
   * `permits` for permits.
   */
  | ({ event: 'acquired'; key: string; ttlMs: number; waitMs: number; holdMs?: number; maxHoldMs?: number } & HeldAs)
  /** A call did not get the lock: it failed with `LockContendedError` or `LockUnavailableError`. */
  | { event: 'refused'; key: string; reason: Refusal }
  | { event: 'released'; key: string }
  /** A call detached the lock, or adopted it. */
  | { event: 'detached' | 'adopted'; key: string }
  | { event: 'lost'; key: string; reason: LockLostReason };

/** The beginning of owner values that belong to the pretended other process. */
export const ELSEWHERE = 'elsewhere/1/bench';
const HOLDER = parseOwner(`${ELSEWHERE}/0`);
const OUTAGE = new NodeError(
  'the store of LockBench',
  'it is unavailable, because the test simulates an outage',
  'The test planned this outage.',
);

/** Refusals that a test has planned. */
export interface PlannedRefusal {
  readonly key: string;
  readonly reason: Refusal;
  /** How many calls are refused. */
  readonly times: number;
  /** The line of the test that planned them. */
  readonly at: string;
  /** How many of these calls are still to come. */
  left: number;
}

/** The request of a call, including options that the engine itself does not need. */
type CallRequest = WaitRequest & HoldOptions;

/** An engine that refuses calls and loses leases on request, and keeps a journal. */
export class BenchEngine extends LockEngine {
  readonly journal: JournalEntry[] = [];
  /** Planned refusals that calls have not used up yet. */
  readonly refusals: PlannedRefusal[] = [];

  constructor(parts: EngineParts) {
    super(parts);
    this.events.subscribe((event) => {
      const { type, key } = event;
      if (type === 'released' || type === 'detached') this.journal.push({ event: type, key });
      else if (type === 'lost') this.journal.push({ event: 'lost', key, reason: event.reason });
      else if (type === 'acquired' && event.grant === 'adopted') this.journal.push({ event: 'adopted', key });
    });
  }

  get heldKeys(): string[] {
    return [...this.labels().keys()].filter((key) => this.#leasesHeld(key).length > 0);
  }

  override acquire(key: string, request: CallRequest, closing: Closing, label?: string): Promise<LockHandle> {
    const { ttlMs, waitMs, holdMs, maxHoldMs, isProbe, hold } = request;
    const limits = { ...(holdMs ? { holdMs } : undefined), ...(maxHoldMs ? { maxHoldMs } : undefined) };
    const asked = { ttlMs, waitMs, ...limits, ...heldAs(hold) };
    const refusal = this.#refusalOf(key, request);
    const lock = refusal ? this.refuse(refusal) : super.acquire(key, request, closing, label);
    // The entry precedes the caller's own code. Events would come too early: a lock is passed on before it counts as released.
    lock.then(
      () => this.journal.push({ event: 'acquired', key, ...asked }),
      (error: unknown) => {
        if (isProbe && error instanceof LockContendedError) return; // the call then waits for the lock
        const of = { key, label: label ?? this.leases.labels.of(key), waitedMs: 0, ...heldAs(hold) };
        const event = failureEvent(error, of);
        if (!event) return;
        this.journal.push({ event: 'refused', key, reason: event.type });
        if (refusal) this.events.next(event);
      },
    );
    return lock;
  }

  /** Returns all leases of a key: several only for shared locks and permits. @throws LockOptionsError if the key is not held */
  heldLeases(key: string): Lease[] {
    const leases = this.#leasesHeld(key);
    if (leases.length > 0) return leases;
    throw new LockOptionsError(
      `Lock ${quoted(key)} cannot be lost: the code under test does not hold it. It holds ${listed(this.heldKeys) || 'none'}.`,
    );
  }

  lose(lease: Lease, reason: LockLostReason): void {
    lease.lose(reason, reason === 'unavailable' ? OUTAGE : undefined);
  }

  #leasesHeld(key: string): Lease[] {
    return this.leasesOf(key).filter((lease) => lease.checkHeld());
  }

  #refusalOf(key: string, { ttlMs, waitMs, isProbe, holding, hold }: CallRequest): Error | undefined {
    const wanted = (text: string) => this.refusals.find((each) => each.key === text);
    const refusal = wanted(key) ?? wanted(splitScope(key).rest);
    if (!refusal) return undefined;
    const { reason } = refusal;
    // A call for several keys that finds one of them held then waits for it: the refusal is for that second attempt.
    if (!(isProbe && reason === 'contended') && --refusal.left === 0) {
      this.refusals.splice(this.refusals.indexOf(refusal), 1);
    }
    return reason === 'contended'
      ? new LockContendedError(key, waitMs, {
          holder: HOLDER,
          remainingMs: ttlMs,
          permits: heldAs(hold).permits,
          holding,
        })
      : LockUnavailableError.from('acquired', key, [OUTAGE]);
  }
}
