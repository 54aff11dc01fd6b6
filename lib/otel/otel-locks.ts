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
  /** Make spans `acquire <label>` and `hold <label>`. @default true */
  spans?: boolean;
  /** Record metrics. @default true */
  metrics?: boolean;
  /** Whether spans have the keys of locks: without them they have labels only. @default true */
  spanKeys?: boolean;
  /** @default the global one, at the time when the locks are opened */
  tracerProvider?: TracerProvider;
  /** @default the global one, at the time when the locks are opened */
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
 * Spans and metrics of OpenTelemetry, for the option `telemetry` of a registration. Start the SDK before the application.
 * @throws LockOptionsError
 */
export function otelLocks(options: OtelLocksOptions = {}): LockTelemetry {
  refuseUnknown(options, Object.keys(CHECKS));
  return new OtelLocks(checked(options, CHECKS));
}

/** Two of the same options are equal, so that modules may register the same locks. */
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
      // Without spans there is nothing to observe of work: how long locks are held is in their events.
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

/** What runs under a span has it as its parent. */
function observation(span: Span | undefined, end: () => void): Observation {
  return {
    run: (work) => (span ? context.with(tracing.setSpan(context.active(), span), work) : work()),
    end,
  };
}

/** Without the message of the error, which may name the key. */
function failed(span: Span, type: string): void {
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
