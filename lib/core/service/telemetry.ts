import { tracingChannel, type TracingChannel } from 'node:diagnostics_channel';
import { performance } from 'node:perf_hooks';
import { LockContendedError, LockError, LockUnavailableError } from '../../api/errors.js';
import { printable } from '../../api/printable.js';
import type {
  AcquireTrace,
  HoldTrace,
  LockObserver,
  LockTelemetry,
  Observation,
  ObservedLocks,
} from '../../api/telemetry.js';
import { heldAs } from '../locks/lease.js';
import type { LockEngine } from '../locks/lock-engine.js';
import { leasesOf, LockHandle } from '../locks/lock-handle.js';
import { LockSetHandle, type Held } from '../locks/lock-set-handle.js';
import type { Call } from './call.js';
import { LockContext } from './lock-context.js';

/** The channel for acquires. */
export const acquires = channelOf<AcquireTrace>('nest-redis-lock:acquire');
/** The channel for work under locks. */
export const holds = channelOf<HoldTrace>('nest-redis-lock:hold');

function channelOf<Trace extends object>(name: string): TracingChannel<unknown, Trace> {
  const tracing = tracingChannel<unknown, Trace>(name);
  // In Bun 1.4 only the parts of the channel know whether they have subscribers.
  if ((tracing.hasSubscribers as boolean | undefined) === undefined) {
    const parts = [tracing.start, tracing.end, tracing.asyncStart, tracing.asyncEnd, tracing.error];
    Object.defineProperty(tracing, 'hasSubscribers', { get: () => parts.some((part) => part.hasSubscribers) });
  }
  return tracing;
}

/** The origin of a set of locks is the first of these that one of its locks has. */
const ORIGINS = ['waited', 'passed', 'free', 'reentrant'] as const;

/** How a part of a call is observed. */
interface Observed<T> {
  readonly begin: (observer: LockObserver) => Observation | undefined;
  /** Completes the trace at the end, with `error` if there is one. */
  readonly note: (outcome: PromiseSettledResult<T>) => void;
}

/**
 * The telemetry of one service: the tracing channels of Node.js, and the observer of the option `telemetry`. The service calls it only if a
 * channel has subscribers, or there is an observer.
 */
export class Telemetry {
  observer?: LockObserver;
  #hasFailed = false;

  constructor(
    private readonly registration: string,
    private readonly engine: LockEngine,
  ) {}

  open(telemetry: LockTelemetry, locks: ObservedLocks): void {
    const { leases, events } = this.engine;
    const observer = (this.observer = LockContext.outside(() => telemetry.open(locks)));
    leases.onExtension = ({ key }, status, tookMs) => {
      const outcome = status === 'unavailable' ? 'failed' : status;
      LockContext.outside(() => this.#safely(key, () => this.observer?.extended({ tookMs, outcome })));
    };
    // An uncaught error of a subscriber would end the process.
    if (observer.noted) events.subscribe((event) => this.#safely(event.key, () => observer.noted?.(event)));
  }

  close(): void {
    LockContext.outside(() => this.#safely('', () => this.observer?.close()));
    this.observer = undefined;
  }

  acquire<H extends Held>(
    { keys, request, label, isOptional }: Pick<Call, 'keys' | 'request' | 'label' | 'isOptional'>,
    acquire: () => Promise<H>,
  ): Promise<H> {
    const { ttlMs, waitMs, hold } = request;
    const { registration } = this;
    const [key] = keys as [string];
    const of = label ?? this.engine.leases.labels.of(key);
    const one = { registration, label: of, key, ttlMs, waitMs, ...heldAs(hold) };
    const trace: AcquireTrace = keys.length > 1 ? { ...one, keys } : one;
    const since = performance.now();
    return this.#observe(acquires, trace, acquire, {
      begin: (observer) => observer.acquire(trace),
      note: (outcome) => {
        trace.waitedMs = performance.now() - since;
        if (outcome.status === 'fulfilled') return noteGrant(trace, outcome.value);
        trace.outcome = outcomeOf(outcome.reason);
        if (!isOptional || trace.outcome !== 'contended') trace.error = outcome.reason;
      },
    });
  }

  hold<T>(held: Held, work: () => T | PromiseLike<T>): Promise<T> {
    const [lease] = leasesOf(held);
    const { registration } = this;
    const { owner: _, fencingToken, ...of } = this.engine.leases.identity(lease!);
    const trace: HoldTrace =
      held instanceof LockSetHandle ? { registration, ...of, keys: held.keys } : { registration, ...of, fencingToken };
    return this.#observe(holds, trace, work, {
      begin: (observer) => observer.hold?.(trace),
      note: (outcome) => {
        noteLoss(trace, held);
        if (outcome.status === 'rejected') trace.error = outcome.reason;
      },
    });
  }

  /** Observes a part of a call, outside of the locks of that call. */
  #observe<T, Trace extends AcquireTrace | HoldTrace>(
    tracing: TracingChannel<unknown, Trace>,
    trace: Trace,
    work: () => T | PromiseLike<T>,
    { begin, note }: Observed<T>,
  ): Promise<T> {
    return LockContext.outside(async (under) => {
      const observation = this.#safely(trace.key, () => this.observer && begin(this.observer));
      let outcome!: PromiseSettledResult<T>;
      // It returns nothing: the channel would publish a lock with its owner value.
      const run = async () => {
        try {
          outcome = { status: 'fulfilled', value: await this.#under(observation, trace.key, () => under(work)) };
        } catch (reason) {
          outcome = { status: 'rejected', reason };
        }
        note(outcome);
        this.#safely(trace.key, () => observation?.end());
        if ('error' in trace) throw trace.error;
      };
      await (tracing.hasSubscribers ? tracing.tracePromise(run, trace) : run());
      if (outcome.status === 'rejected') throw outcome.reason;
      return outcome.value;
    });
  }

  /** Runs the work once in the async context of an observation, even if the observer fails. */
  #under<T>(observation: Observation | undefined, key: string, work: () => T | PromiseLike<T>): Promise<T> {
    let running: Promise<T> | undefined;
    const begin = () => (running ??= (async () => work())());
    this.#safely(key, () => void observation?.run(begin));
    return begin();
  }

  /** If telemetry fails, the lock and the result of its work must not be lost. */
  #safely<T>(key: string, observe: () => T): T | undefined {
    try {
      return observe();
    } catch (error) {
      if (this.#hasFailed) return undefined;
      this.#hasFailed = true; // before the warning, which is an event that telemetry observes
      this.engine.events.warn(key, `The telemetry of locks has failed, and may fail again: ${printed(error)}.`);
      return undefined;
    }
  }
}

/** The text of an error, which can be any value, even one that cannot be printed. */
function printed(error: unknown): string {
  try {
    return printable(String(error));
  } catch {
    return 'an error that cannot be printed';
  }
}

function noteGrant(trace: AcquireTrace, held: Held): void {
  trace.outcome = 'acquired';
  if (held instanceof LockHandle) {
    trace.grant = held.origin;
    trace.fencingToken = held.lease.fencingToken;
  } else {
    trace.grant = ORIGINS.find((origin) => held.locks.some((lock) => lock.origin === origin));
  }
}

function outcomeOf(error: unknown): AcquireTrace['outcome'] {
  if (error instanceof LockContendedError) return 'contended';
  if (error instanceof LockUnavailableError) return 'unavailable';
  return error instanceof LockError ? 'refused' : 'aborted';
}

function noteLoss(trace: HoldTrace, held: Held): void {
  const lost = leasesOf(held).find((lease) => lease.checkState() === 'lost');
  if (lost) trace.lost = { reason: lost.lostReason, beforeMs: lost.lostForMs };
}
