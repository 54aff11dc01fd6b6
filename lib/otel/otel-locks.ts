import {
  context,
  metrics,
  SpanStatusCode,
  trace as tracing,
  type Attributes,
  type MeterProvider,
  type Span,
  type Tracer,
  type TracerProvider,
} from '@opentelemetry/api';
import type { LockErrorCode } from '../api/errors.js';
import type {
  AcquireTrace,
  HoldTrace,
  LockObserver,
  LockTelemetry,
  Observation,
  ObservedLocks,
} from '../api/telemetry.js';
import { VERSION } from '../api/version.js';
import { checked, fits, isFunction, oneOf, refuseUnknown, type Check } from '../core/options/checks.js';
import { errorType, LockMeters } from './lock-meters.js';

/** Options of `otelLocks`. */
export interface OtelLocksOptions {
  /** Whether to create the spans `acquire <label>` and `hold <label>`. @default true */
  spans?: boolean;
  /** Whether to record metrics. @default true */
  metrics?: boolean;
  /** Whether spans contain the keys of locks, in addition to labels. @default true */
  spanKeys?: boolean;
  /** The source of tracers. @default the global provider when the locks are opened */
  tracerProvider?: TracerProvider;
  /** The source of meters. @default the global provider when the locks are opened */
  meterProvider?: MeterProvider;
}

const SCOPE = 'nest-redis-lock';

const providerWith = (method: 'getTracer' | 'getMeter') =>
  fits((value) => isFunction((value as Record<string, unknown> | null)?.[method]), `an object with a method ${method}`);

const CHECKS: Readonly<Record<keyof OtelLocksOptions, Check>> = {
  spans: oneOf(true, false),
  metrics: oneOf(true, false),
  spanKeys: oneOf(true, false),
  tracerProvider: providerWith('getTracer'),
  meterProvider: providerWith('getMeter'),
};

/**
 * Makes the OpenTelemetry spans and metrics for the option `telemetry` of a registration. Start the SDK before the application.
 * @throws LockOptionsError
 */
export function otelLocks(options: OtelLocksOptions = {}): LockTelemetry {
  refuseUnknown(options, Object.keys(CHECKS));
  return new OtelLocks(checked(options, CHECKS));
}

/** A class with the options as its only field, so that several modules can register the same locks. */
class OtelLocks implements LockTelemetry {
  constructor(private readonly options: OtelLocksOptions) {}

  open(locks: ObservedLocks): LockObserver {
    const { spans = true, metrics: measures = true, spanKeys = true, tracerProvider, meterProvider } = this.options;
    const tracer = spans ? (tracerProvider ?? tracing).getTracer(SCOPE, VERSION) : undefined;
    const meters = measures ? new LockMeters((meterProvider ?? metrics).getMeter(SCOPE, VERSION), locks) : undefined;
    return {
      acquire: (trace) => {
        const startedAt = performance.now();
        const span = tracer && startSpan(tracer, 'acquire', trace, spanKeys);
        return observation(span, () => {
          meters?.acquired(trace, performance.now() - startedAt);
          if (!span) return;
          span.setAttributes({
            'nest_redis_lock.outcome': trace.outcome,
            'nest_redis_lock.grant': trace.grant,
            'nest_redis_lock.fencing_token': trace.fencingToken,
          });
          if (trace.error !== undefined) failed(span, errorType(trace.error));
          span.end();
        });
      },
      // Only spans need this: the events say how long locks were held.
      hold: tracer && ((trace) => observeHold(startSpan(tracer, 'hold', trace, spanKeys), trace)),
      noted: meters && ((event) => meters.note(event)),
      extended: (extension) => meters?.extended(extension),
      close: () => meters?.close(),
    };
  }
}

function observeHold(span: Span, trace: HoldTrace): Observation {
  return observation(span, () => {
    const { lost } = trace;
    if (lost) {
      span.addEvent('lost', { 'nest_redis_lock.reason': lost.reason }, Date.now() - lost.beforeMs);
      failed(span, 'LOCK_LOST' satisfies LockErrorCode);
    } else if ('error' in trace) failed(span, errorType(trace.error));
    span.end();
  });
}

function startSpan(tracer: Tracer, what: string, trace: AcquireTrace | HoldTrace, withKeys: boolean): Span {
  const { registration, label, key, keys, fencingToken, mode, permits } = trace;
  const attributes: Attributes = {
    'nest_redis_lock.registration': registration,
    'nest_redis_lock.label': label,
    'nest_redis_lock.fencing_token': fencingToken,
    'nest_redis_lock.mode': mode,
    'nest_redis_lock.permits': permits,
  };
  if (withKeys && keys) attributes['nest_redis_lock.keys'] = [...keys];
  else if (withKeys) attributes['nest_redis_lock.key'] = key;
  return tracer.startSpan(`${what} ${label}`, { attributes });
}

/** Runs the work with the span as its parent. */
function observation(span: Span | undefined, end: () => void): Observation {
  return {
    run: (work) => (span ? context.with(tracing.setSpan(context.active(), span), work) : work()),
    end,
  };
}

/** Marks a span as failed, without the error message, which may name the key. */
function failed(span: Span, type: string): void {
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
