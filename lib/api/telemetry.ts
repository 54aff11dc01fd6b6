import type { LockPing } from './diagnosis.js';
import type { LockLostReason } from './errors.js';
import type { HeldAs, LockEvent, LockGrant } from './events.js';
import type { LockHolder } from './holder.js';
import type { LockMode, LockStats } from './lock.js';

interface CallIdentity extends Readonly<HeldAs> {
  /** Name of the registration. */
  readonly registration: string;
  readonly label: string;
  /** The key of the call. If it has several keys, the first that is acquired. */
  readonly key: string;
  /** All keys of a call for several, in the order in which they are acquired. */
  readonly keys?: readonly string[];
}

/**
 * One call for a lock, or for several at once, until the caller has its answer: the context of the tracing channel
 * `nest-redis-lock:acquire`. Optional fields are set at the end.
 */
export interface AcquireTrace extends CallIdentity {
  readonly ttlMs: number;
  readonly waitMs: number;
  /** The outcome. `refused`: the call was wrong, or would wait for itself. `aborted`: the caller's signal aborted. */
  outcome?: 'acquired' | 'contended' | 'unavailable' | 'aborted' | 'refused';
  /** How the call got its lock. `reentrant`: it already held the lock. For several locks, `waited` if it waited for one of them. */
  grant?: LockGrant | 'reentrant';
  waitedMs?: number;
  /** The fencing token; `undefined` for permits, and for several locks, each of which has its own. */
  fencingToken?: number;
  /**
   * The error of the call. Contention is not an error if the caller continues without the lock: `tryAcquire`, `onContended`.
   */
  error?: unknown;
}

/**
 * The work of `withLock`, of a locked method or of a leader, under its lock: the context of the tracing channel
 * `nest-redis-lock:hold`. Optional fields, except for the token, are set at the end.
 */
export interface HoldTrace extends CallIdentity {
  readonly fencingToken?: number;
  /** The loss of the lock: its reason, and how many milliseconds before the end of the work it happened. */
  lost?: { reason: LockLostReason; beforeMs: number };
  /** The error of the work. */
  error?: unknown;
}

type WithoutOwner<Event> = Event extends unknown
  ? Omit<Event, 'owner' | 'holder'> & ('holder' extends keyof Event ? { holder?: Omit<LockHolder, 'owner'> } : unknown)
  : never;

/** The message of the channel `nest-redis-lock:event`: an event of `LockService.events$`, without owner values. */
export type LockEventMessage = { registration: string } & WithoutOwner<LockEvent>;

/** The option `telemetry` of a registration: `otelLocks()` of `nest-redis-lock/otel`. Its methods may change in any version. */
export interface LockTelemetry {
  /** Called when a lock service opens. @returns the observer of its calls until it closes */
  open(locks: ObservedLocks): LockObserver;
}

/** The observed lock service. */
export interface ObservedLocks {
  readonly registration: string;
  /** Counts held locks and waiting calls by label and mode. */
  stats(): ObservedStats[];
  ping(): Promise<LockPing>;
  /**
   * Returns the error bound of the estimated server clock, in milliseconds; `fair` orders calls by that clock. `undefined` before
   * the first call that waits or uses `fair`, and in a store without such a clock.
   */
  clockErrorMs?(): number | undefined;
}

/** Held locks and waiting calls of one label in one mode. */
export interface ObservedStats extends LockStats {
  mode: LockMode;
}

/**
 * Observes the calls of one lock service, in the async context of each call, but outside of the locks that it holds. If it
 * throws, the locks continue to work, and a `warning` reports it once.
 */
export interface LockObserver {
  acquire(trace: AcquireTrace): Observation;
  hold?(trace: HoldTrace): Observation;
  extended(extension: ObservedExtension): void;
  /**
   * Called with each event of the service, outside of all calls. Without this method, the service creates events only for
   * subscribers of `events$`.
   */
  noted?(event: LockEvent): void;
  close(): void;
}

/** An operation in flight. */
export interface Observation {
  /** Runs the work: once, synchronously, and in any async context that the observer chooses. */
  run<T>(work: () => T): T;
  /** Called when the operation has ended; the trace says how. */
  end(): void;
}

/** An extension of a lease that succeeded or failed. */
export interface ObservedExtension {
  /** Milliseconds that it took. */
  tookMs: number;
  outcome: 'extended' | 'failed' | 'lost';
}
