import { channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel';
import { performance } from 'node:perf_hooks';
import { Subject, type Observable } from 'rxjs';
import { LockContendedError, LockError, LockUnavailableError } from '../../api/errors.js';
import type { LockEvent } from '../../api/events.js';
import { printable } from '../../api/printable.js';
import type {
  AcquireTrace,
  HoldTrace,
  LockEventMessage,
  LockObserver,
  LockTelemetry,
  Observation,
  ObservedLocks,
} from '../../api/telemetry.js';
import type { ExtendOutcome } from '../backend/lock-backend.js';
import type { Lease } from '../lease/lease.js';
import { LockHandle } from '../lease/lock-handle.js';
import type { LockSetHandle } from '../lease/lock-set-handle.js';
import { notify } from '../time/notify.js';

const acquires = tracingChannel<unknown, AcquireTrace>('nest-redis-lock:acquire');
const holds = tracingChannel<unknown, HoldTrace>('nest-redis-lock:hold');
const events = channel('nest-redis-lock:event');

/** How a set of locks was come by, as the first of these that one of its locks was. */
const GRANTS = ['waited', 'passed', 'free', 'reentrant'] as const;

/**
 * The events of a service, which are also published on a channel of Node.js while that has subscribers. Whoever hears of them
 * runs outside of the call that caused them. Grants, releases and contention, which are most of them, need not be made unless
 * they are observed.
 */
export class PublishedEvents extends Subject<LockEvent> {
  /** The same, for whoever needs none of these: to listen here does not count as observing. */
  readonly troubles = new Subject<LockEvent>();

  constructor(private readonly registration: string) {
    super();
  }

  override get observed(): boolean {
    return super.observed || events.hasSubscribers;
  }

  override next(event: LockEvent): void {
    notify(this.#publish, event);
  }

  override complete(): void {
    notify(() => {
      this.troubles.complete();
      super.complete();
    });
  }

  readonly #publish = (event: LockEvent): void => {
    this.troubles.next(event);
    super.next(event);
    if (events.hasSubscribers) events.publish(messageOf(this.registration, event));
  };
}

/** Runs what observes a call outside of the locks of that call. @param observe gets what runs the call's own work under them */
type BesideLocks = <R>(observe: (under: <T>(work: () => T) => T) => R) => R;

/**
 * The telemetry of one service: tracing channels of Node.js, and the observer of the option `telemetry`. Whoever makes a trace
 * looks first whether it is observed.
 */
export class Telemetry {
  #observer?: LockObserver;
  #hasFailed = false;

  /** @param warn says once that the observer has failed */
  constructor(
    private readonly warn: (key: string, message: string) => void,
    private readonly besideLocks: BesideLocks,
  ) {}

  /** Whether acquires are observed. */
  get ofAcquires(): boolean {
    return this.#observer !== undefined || acquires.hasSubscribers;
  }

  /** Whether work under locks is observed. */
  get ofHolds(): boolean {
    return this.#observer?.hold !== undefined || holds.hasSubscribers;
  }

  open(telemetry: LockTelemetry, locks: ObservedLocks, events$: Observable<LockEvent>): void {
    const observer = (this.#observer = this.besideLocks(() => telemetry.open(locks)));
    if (!observer.noted) return;
    // What a subscriber throws would end the process.
    events$.subscribe((event) => this.#safely(event.key, () => observer.noted?.(event)));
  }

  close(): void {
    this.besideLocks(() => this.#safely('', () => this.#observer?.close()));
    this.#observer = undefined;
  }

  /**
   * Observes an acquire.
   * @param isOptional whether the caller goes on without the lock if another holder has it
   */
  acquire<Held extends LockHandle | LockSetHandle>(
    trace: AcquireTrace,
    isOptional: boolean,
    acquire: () => Promise<Held>,
  ): Promise<Held> {
    return this.besideLocks((under) => this.#acquire(trace, isOptional, () => under(acquire)));
  }

  /** Observes work under a lock. */
  hold<T>(trace: HoldTrace, held: LockHandle | LockSetHandle, work: () => T | PromiseLike<T>): Promise<T> {
    return this.besideLocks((under) => this.#hold(trace, held, () => under(work)));
  }

  extended({ key }: Lease, status: ExtendOutcome['status'], tookMs: number): void {
    const outcome = status === 'unavailable' ? 'failed' : status;
    this.besideLocks(() => this.#safely(key, () => this.#observer?.extended({ tookMs, outcome })));
  }

  async #acquire<Held extends LockHandle | LockSetHandle>(
    trace: AcquireTrace,
    isOptional: boolean,
    acquire: () => Promise<Held>,
  ): Promise<Held> {
    let held: Held | undefined;
    let refusal: unknown;
    const since = performance.now();
    const observation = this.#safely(trace.key, () => this.#observer?.acquire(trace));
    await traced(acquires, trace, async () => {
      try {
        held = await this.#under(observation, trace.key, acquire);
        noteGrant(trace, held);
      } catch (error) {
        refusal = error;
        trace.outcome = outcomeOf(error);
        if (isOptional && trace.outcome === 'contended') return; // an answer
        trace.error = error;
        throw error;
      } finally {
        trace.waitedMs = performance.now() - since;
        this.#safely(trace.key, () => observation?.end());
      }
    });
    if (!held) throw refusal;
    return held;
  }

  async #hold<T>(trace: HoldTrace, held: LockHandle | LockSetHandle, work: () => T | PromiseLike<T>): Promise<T> {
    let value!: T;
    const observation = this.#safely(trace.key, () => this.#observer?.hold?.(trace));
    await traced(holds, trace, async () => {
      try {
        value = await this.#under(observation, trace.key, work);
      } catch (error) {
        trace.error = error;
        throw error;
      } finally {
        noteLoss(trace, held);
        this.#safely(trace.key, () => observation?.end());
      }
    });
    return value;
  }

  /** Runs the work in the async context of an observation; once, and also if the observer fails before or after it. */
  #under<T>(observation: Observation | undefined, key: string, work: () => T | PromiseLike<T>): Promise<T> {
    let running: Promise<T> | undefined;
    const begin = () => (running ??= (async () => work())());
    this.#safely(key, () => void observation?.run(begin));
    return begin();
  }

  /** Telemetry that fails must not cost a lock, or the result of its work. */
  #safely<T>(key: string, observe: () => T): T | undefined {
    try {
      return observe();
    } catch (error) {
      if (this.#hasFailed) return undefined;
      this.#hasFailed = true; // before the warning, which is an event, and as such observed
      this.warn(key, `The telemetry of locks has failed, and may again: ${printed(error)}.`);
      return undefined;
    }
  }
}

/** Anything can be thrown, also what cannot be printed. */
function printed(error: unknown): string {
  try {
    return printable(String(error));
  } catch {
    return 'an error that cannot be printed';
  }
}

/** The work has no result, as the channel would publish it: a lock has its owner value. */
function traced<Trace extends object>(
  tracing: TracingChannel<unknown, Trace>,
  trace: Trace,
  work: () => Promise<void>,
): Promise<void> {
  return tracing.hasSubscribers ? tracing.tracePromise(work, trace) : work();
}

function noteGrant(trace: AcquireTrace, held: LockHandle | LockSetHandle): void {
  trace.outcome = 'acquired';
  if (held instanceof LockHandle) {
    trace.grant = held.grant;
    trace.fencingToken = held.lease.fencingToken;
  } else {
    trace.grant = GRANTS.find((grant) => held.locks.some((lock) => lock.grant === grant));
  }
}

function outcomeOf(error: unknown): AcquireTrace['outcome'] {
  if (error instanceof LockContendedError) return 'contended';
  if (error instanceof LockUnavailableError) return 'unavailable';
  return error instanceof LockError ? 'refused' : 'aborted';
}

function noteLoss(trace: HoldTrace, held: LockHandle | LockSetHandle): void {
  const locks = held instanceof LockHandle ? [held] : held.locks;
  const lost = locks.find(({ lease }) => lease.state === 'lost')?.lease;
  if (lost) trace.lost = { reason: lost.lostReason, beforeMs: lost.lostForMs };
}

function messageOf(registration: string, event: LockEvent): LockEventMessage {
  if ('owner' in event) {
    const { owner: _, ...message } = event;
    return { registration, ...message };
  }
  if (event.type !== 'contended') return { registration, ...event };
  const { holder, ...message } = event;
  return { registration, ...message, holder: holder && { host: holder.host, pid: holder.pid } };
}
