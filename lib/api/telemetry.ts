import type { LockPing } from './diagnosis.js';
import type { LockLostReason } from './errors.js';
import type { HeldAs, LockEvent, LockGrant } from './events.js';
import type { LockHolder } from './holder.js';
import type { LockMode, LockStats } from './lock.js';

interface OfCall extends Readonly<HeldAs> {
  /** Name of the registration. */
  readonly registration: string;
  readonly label: string;
  /** The key of the call; of several the first, in the order in which they are acquired. */
  readonly key: string;
  /** All keys of a call for several, in that order. */
  readonly keys?: readonly string[];
}

/**
 * One call for a lock, or for several at once, from its beginning until the caller has its answer: the context of the tracing
 * channel `nest-redis-lock:acquire`. Optional fields are set at the end.
 */
export interface AcquireTrace extends OfCall {
  readonly ttlMs: number;
  readonly waitMs: number;
  /** `refused`: the call was wrong, or would wait for itself. `aborted`: the caller's signal aborted. */
  outcome?: 'acquired' | 'contended' | 'unavailable' | 'aborted' | 'refused';
  /** `reentrant`: the call already held the lock. For several locks it is `waited` if the call waited for one of them. */
  grant?: LockGrant | 'reentrant';
  waitedMs?: number;
  /** `undefined` for permits, and for several locks, each of which has its own. */
  fencingToken?: number;
  /**
   * The error that the call rejects with. Contention is not an error if the caller continues without the lock: `tryAcquire`,
   * `onContended`.
   */
  error?: unknown;
}

/**
 * The work of `withLock`, of a locked method or of a leader, under its lock: the context of the tracing channel
 * `nest-redis-lock:hold`. Optional fields, except for the token, are set at the end.
 */
export interface HoldTrace extends OfCall {
  readonly fencingToken?: number;
  /** Set if the lock was lost: why, and how many milliseconds before the work ended. */
  lost?: { reason: LockLostReason; beforeMs: number };
  /** The error that the work rejects with. */
  error?: unknown;
}

type WithoutOwner<Event> = Event extends unknown
  ? Omit<Event, 'owner' | 'holder'> & ('holder' extends keyof Event ? { holder?: Omit<LockHolder, 'owner'> } : unknown)
  : never;

/** The message of the channel `nest-redis-lock:event`: an event of `LockService.events$`, without owner values. */
export type LockEventMessage = { registration: string } & WithoutOwner<LockEvent>;

/** The option `telemetry` of a registration: `otelLocks()` of `nest-redis-lock/otel`. Its methods may change in any version. */
export interface LockTelemetry {
  /** Called when a lock service opens. @returns what observes its calls until it closes */
  open(locks: ObservedLocks): LockObserver;
}

/** The lock service that is observed. */
export interface ObservedLocks {
  readonly registration: string;
  /** What is held and waited for, by label and mode. */
  stats(): ObservedStats[];
  ping(): Promise<LockPing>;
  /**
   * How wrong this process may know the clock of its servers, by which calls are ordered with `fair`, in milliseconds; `undefined` before
   * the first call that asks with `fair`, or that waits, and without such a clock.
   */
  clockErrorMs?(): number | undefined;
}

/** Locks of one label that are held, or wanted, in one mode. */
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
   * Called with each event of its locks, outside of all calls. Without this method, events are created only for subscribers of
   * `events$`.
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

/** An extension of a lease that was answered or given up. */
export interface ObservedExtension {
  /** How long it took, in milliseconds. */
  tookMs: number;
  outcome: 'extended' | 'failed' | 'lost';
}
