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

/** Each acquire, while it has subscribers. */
export const acquires = channelOf<AcquireTrace>('nest-redis-lock:acquire');
/** The work under locks, while it has subscribers. */
export const holds = channelOf<HoldTrace>('nest-redis-lock:hold');

function channelOf<Trace extends object>(name: string): TracingChannel<unknown, Trace> {
  const tracing = tracingChannel<unknown, Trace>(name);
  // In Bun 1.4 only the channels that it consists of know whether they have subscribers.
  if ((tracing.hasSubscribers as boolean | undefined) === undefined) {
    const parts = [tracing.start, tracing.end, tracing.asyncStart, tracing.asyncEnd, tracing.error];
    Object.defineProperty(tracing, 'hasSubscribers', { get: () => parts.some((part) => part.hasSubscribers) });
  }
  return tracing;
}

/** How the locks of a set were granted: the first of these that applies to any of them. */
const ORIGINS = ['waited', 'passed', 'free', 'reentrant'] as const;

/** What is observed of a call. */
interface Observed<T> {
  readonly begin: (observer: LockObserver) => Observation | undefined;
  /** Fills in the trace at the end, with its `error` if it has one. */
  readonly note: (outcome: PromiseSettledResult<T>) => void;
}

/**
 * The telemetry of one service: tracing channels of Node.js, and the observer of the option `telemetry`. A call that nobody
 * observes passes by: the service looks at the channels and at `observer` first.
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
    const observer = (this.observer = LockContext.beside(() => telemetry.open(locks)));
    leases.onExtension = ({ key }, status, tookMs) => {
      const outcome = status === 'unavailable' ? 'failed' : status;
      LockContext.beside(() => this.#safely(key, () => this.observer?.extended({ tookMs, outcome })));
    };
    // What a subscriber throws would end the process.
    if (observer.noted) events.subscribe((event) => this.#safely(event.key, () => observer.noted?.(event)));
  }

  close(): void {
    LockContext.beside(() => this.#safely('', () => this.observer?.close()));
    this.observer = undefined;
  }

  /** Observes an acquire. */
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

  /** Observes work under a lock. */
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

  /** Observes work of a call: outside of the locks under which that runs. */
  #observe<T, Trace extends AcquireTrace | HoldTrace>(
    tracing: TracingChannel<unknown, Trace>,
    trace: Trace,
    work: () => T | PromiseLike<T>,
    { begin, note }: Observed<T>,
  ): Promise<T> {
    return LockContext.beside(async (under) => {
      const observation = this.#safely(trace.key, () => this.observer && begin(this.observer));
      let outcome!: PromiseSettledResult<T>;
      // Without a result, as the channel would publish it: a lock has its owner value.
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
      this.engine.events.warn(key, `The telemetry of locks has failed, and may again: ${printed(error)}.`);
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
