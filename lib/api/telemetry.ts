import type { LockPing } from './diagnosis.js';
import type { LockLostReason } from './errors.js';
import type { LockEvent, LockGrant } from './events.js';
import type { LockHolder } from './holder.js';
import type { LockStats } from './lock.js';

interface OfCall {
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
 * channel `nest-redis-lock:acquire`. What is optional is known at the end.
 */
export interface AcquireTrace extends OfCall {
  readonly ttlMs: number;
  readonly waitMs: number;
  /** `refused`: by a mistake in the call, or because it would wait for itself. `aborted`: by the signal of the caller. */
  outcome?: 'acquired' | 'contended' | 'unavailable' | 'aborted' | 'refused';
  /** `reentrant`: the call held the lock already. Several locks were waited for if one of them was. */
  grant?: LockGrant | 'reentrant';
  waitedMs?: number;
  /** Of several locks each has its own, and this is undefined. */
  fencingToken?: number;
  /** What the call rejects with. Contention is none where the caller goes on without the lock: `tryAcquire`, `onContended`. */
  error?: unknown;
}

/**
 * The work of `withLock`, of a locked method or of a leader, under its lock: the context of the tracing channel
 * `nest-redis-lock:hold`. What is optional but for the token is known at the end.
 */
export interface HoldTrace extends OfCall {
  readonly fencingToken?: number;
  /** The lock was lost so many milliseconds before the work ended. */
  lost?: { reason: LockLostReason; beforeMs: number };
  /** What the work rejects with. */
  error?: unknown;
}

type WithoutOwner<Event> = Event extends unknown
  ? Omit<Event, 'owner' | 'holder'> & ('holder' extends keyof Event ? { holder?: Omit<LockHolder, 'owner'> } : unknown)
  : never;

/** The message of the channel `nest-redis-lock:event`: an event of `LockService.events$`, without owner values. */
export type LockEventMessage = { registration: string } & WithoutOwner<LockEvent>;

/** The option `telemetry` of a registration: `otelLocks()` of `nest-redis-lock/otel`. Its methods may change with any version. */
export interface LockTelemetry {
  /** Called when a lock service opens. @returns what observes its calls until it closes */
  open(locks: ObservedLocks): LockObserver;
}

/** The lock service that is observed. */
export interface ObservedLocks {
  readonly registration: string;
  stats(): LockStats[];
  ping(): Promise<LockPing>;
}

/** Observes the calls of one lock service. If it throws, the locks work on, and a `warning` says so once. */
export interface LockObserver {
  acquire(trace: AcquireTrace): Observation;
  hold?(trace: HoldTrace): Observation;
  extended(extension: ObservedExtension): void;
  /** Called with each event of its locks. Without it they are made only for those who subscribe to `events$`. */
  noted?(event: LockEvent): void;
  close(): void;
}

/** Something that is under way. */
export interface Observation {
  /** Runs it: once, at once, and in whatever async context the observer wants. */
  run<T>(work: () => T): T;
  /** Called when it has ended: the trace says how. */
  end(): void;
}

/** An extension of a lease that was answered, or given up. */
export interface ObservedExtension {
  /** Since it was asked for, in milliseconds. */
  tookMs: number;
  outcome: 'extended' | 'failed' | 'lost';
}
