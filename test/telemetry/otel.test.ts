import { readFileSync } from 'node:fs';
import { setImmediate as loopTurn } from 'node:timers/promises';
import { context, createNoopMeter, SpanStatusCode, type Meter } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Injectable } from '@nestjs/common';
import { Locked } from 'nest-redis-lock';
import { otelLocks, type OtelLocksOptions } from 'nest-redis-lock/otel';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { openLocks } from '../support/open-locks.js';
import { warningsOf } from '../support/scene.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

const nothing = () => Promise.resolve();

/** The providers of a separate SDK, and their records. */
function sdk(options: OtelLocksOptions = {}) {
  const spanExporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spanExporter)] });
  const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  onTestFinished(async () => {
    await tracerProvider.shutdown();
    await meterProvider.shutdown();
  });
  return {
    telemetry: otelLocks({ tracerProvider, meterProvider, ...options }),
    tracer: tracerProvider.getTracer('test'),
    spans: () => spanExporter.getFinishedSpans(),
    span: (name: string) => spanExporter.getFinishedSpans().find((each) => each.name === name)!,
    /** The name and the version of each scope that created metrics. */
    async meters() {
      await reader.forceFlush();
      return metricExporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.map(({ scope }) => scope));
    },
    /** The points of each metric, by its name without the prefix. */
    async points() {
      metricExporter.reset();
      await reader.forceFlush();
      const all = metricExporter
        .getMetrics()
        .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
      return new Map(
        all.map(({ descriptor, dataPoints }) => [
          descriptor.name.replace('nest_redis_lock.', ''),
          dataPoints.map(({ attributes, value }) => ({
            ...Object.fromEntries(
              Object.entries(attributes).map(([name, at]) => [name.replace('nest_redis_lock.', ''), at]),
            ),
            value: typeof value === 'object' ? ((value as { count: number }).count as number) : value,
          })),
        ]),
      );
    },
  };
}

describe('spans', () => {
  it('have the work below the hold, and the wait next to it, in the trace of the caller [G456]', async () => {
    const { telemetry, tracer, span, meters } = sdk();
    const locks = await openLocks({ memory: true, telemetry });
    await tracer.startActiveSpan('request', async (request) => {
      await locks.withLock('order:7', { label: 'orders' }, async () => {
        await Promise.resolve();
        await tracer.startActiveSpan('query', async (query) => query.end());
      });
      tracer.startSpan('response').end();
      request.end();
    });
    const { spanId, traceId } = span('request').spanContext();
    const parentOf = (name: string) => span(name).parentSpanContext?.spanId;
    expect(parentOf('acquire orders')).toBe(spanId);
    expect(parentOf('hold orders')).toBe(spanId);
    expect(parentOf('query')).toBe(span('hold orders').spanContext().spanId);
    expect(parentOf('response')).toBe(spanId);
    expect(span('query').spanContext().traceId).toBe(traceId);
    const common = { 'nest_redis_lock.registration': 'default', 'nest_redis_lock.label': 'orders' };
    const token = expect.any(Number) as number;
    const of = { ...common, 'nest_redis_lock.key': 'order:7', 'nest_redis_lock.fencing_token': token };
    expect(span('hold orders').attributes).toEqual(of);
    expect(span('acquire orders').attributes).toEqual({
      ...of,
      'nest_redis_lock.outcome': 'acquired',
      'nest_redis_lock.grant': 'free',
    });
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as object & {
      version: string;
    };
    expect(await meters()).toEqual([expect.objectContaining({ name: 'nest-redis-lock', version })]);
    expect(span('hold orders').instrumentationScope).toMatchObject({ name: 'nest-redis-lock', version });
  });

  it('of permits say how many, and metrics count permits and shared locks by label and mode', async () => {
    const { telemetry, span, points } = sdk();
    const locks = await openLocks({ memory: true, telemetry });
    await locks.withPermits('mail:1', { limit: 3, permits: 2 }, nothing);
    for (const name of ['acquire mail', 'hold mail']) {
      const { attributes } = span(name);
      expect(attributes).toMatchObject({ 'nest_redis_lock.mode': 'permits', 'nest_redis_lock.permits': 2 });
      expect(attributes).not.toHaveProperty(['nest_redis_lock.fencing_token']);
    }
    await locks.withLock('report:7', { mode: 'shared' }, nothing);
    expect(span('hold report').attributes).toMatchObject({ 'nest_redis_lock.mode': 'shared' });
    expect((await points()).get('held.count')).toEqual([
      { registration: 'default', label: 'mail', mode: 'permits', value: 0 },
      { registration: 'default', label: 'report', mode: 'shared', value: 0 },
    ]);
  });

  it('are errors with their codes if a call fails, but not if it goes on without the lock [G457]', async () => {
    @Injectable()
    class Jobs {
      @Locked('job', { waitMs: 0, onContended: 'skip' })
      async skipped() {}

      @Locked('job', { waitMs: 0 })
      async refused() {}
    }
    const { telemetry, spans } = sdk();
    const { app, locks } = await makeApp({ providers: [Jobs] }, { memory: true, telemetry });
    const held = await locks.acquire('job');
    await app.get(Jobs).skipped();
    await locks.tryAcquire('job');
    await expect(app.get(Jobs).refused()).rejects.toThrow('"job"');
    await held.release();
    await expect(locks.withLock('job', () => Promise.reject(new TypeError('job is secret')))).rejects.toThrow('secret');
    const lost = locks.withLock('job', async ({ signal }) => {
      await locks.forceRelease('job');
      expect(signal.aborted).toBe(true);
    });
    await expect(lost).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(
      spans().map(({ name, status, attributes }) => [
        name,
        status.code === SpanStatusCode.ERROR,
        attributes['error.type'],
      ]),
    ).toEqual([
      ['acquire _key', false, undefined],
      ['acquire job', false, undefined],
      ['acquire _key', false, undefined],
      ['acquire job', true, 'LOCK_CONTENDED'],
      ['acquire _key', false, undefined],
      ['hold _key', true, 'TypeError'],
      ['acquire _key', false, undefined],
      ['hold _key', true, 'LOCK_LOST'],
    ]);
    expect(spans().at(-1)!.events).toMatchObject([
      { name: 'lost', attributes: { 'nest_redis_lock.reason': 'forced' } },
    ]);
    expect(JSON.stringify(spans().map(({ status, events }) => [status, events]))).not.toMatch(/secret|job/);
  });

  it('have no keys with spanKeys off, and are not made with spans off [G458]', async () => {
    const without = sdk({ spanKeys: false });
    const locks = await openLocks({ memory: true, telemetry: without.telemetry });
    await locks.withLock('patient:4711', nothing);
    await locks.withLock(['patient:4711', 'patient:4712'], nothing);
    expect(without.spans()).toHaveLength(4);
    expect(JSON.stringify(without.spans().map(({ name, attributes }) => [name, attributes]))).not.toContain('patient:');
    await locks.withLock('ada@example.org', nothing);
    await locks.withLock(['ada@example.org', 'bob@example.org'], nothing);
    expect(without.spans()).toHaveLength(8);
    expect(JSON.stringify(without.spans().map(({ name, attributes }) => [name, attributes]))).not.toContain('@');
    const off = sdk({ spans: false });
    const others = await openLocks({ memory: true, telemetry: off.telemetry });
    await others.withLock('k', nothing);
    expect(off.spans()).toEqual([]);
    expect((await off.points()).get('acquire.duration')).toHaveLength(1);
  });
});

describe('metrics', () => {
  it('are eight on locks in memory, by registration, label and mode, without a key, an owner, a token, a host or a process [G459]', async () => {
    const { telemetry, points } = sdk();
    const locks = await openLocks({ memory: true, telemetry }, 'stock');
    const held = await locks.acquire('order:7');
    const waiting = locks.acquire('order:7', { waitMs: 20_000 });
    expect(await locks.tryAcquire('order:8')).not.toBeNull();
    expect(await locks.tryAcquire('order:7')).toBeNull();
    await held.extend();
    const C = { registration: 'stock' };
    const N = { ...C, label: 'order', mode: 'exclusive' };
    const now = await points();
    expect(now.get('held.count')).toEqual([{ ...N, value: 2 }]);
    expect(now.get('pending_requests')).toEqual([{ ...N, value: 1 }]);
    expect(now.get('node.count')).toEqual([
      { ...C, state: 'voting', value: 1 },
      { ...C, state: 'not_voting', value: 0 },
    ]);
    const reasons = ['expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed', 'shutdown'];
    expect(now.get('losses')).toEqual(reasons.map((reason) => ({ ...N, reason, value: 0 })));
    expect(now.get('extension.duration')).toEqual([{ ...C, outcome: 'extended', value: 1 }]);
    expect(now.get('release.failures')).toEqual([{ ...C, value: 0 }]);
    await held.release();
    const next = await waiting;
    await locks.forceRelease('order:7');
    await next.release();
    await until(async () => (await points()).get('hold.duration')?.length === 2, { what: 'a loss and a release' });
    const later = await points();
    expect(later.get('losses')).toContainEqual({ ...N, reason: 'forced', value: 1 });
    expect(later.get('hold.duration')).toEqual([
      { ...N, end: 'released', value: 1 },
      { ...N, end: 'lost', value: 1 },
    ]);
    expect(later.get('acquire.duration')).toEqual([
      { ...N, outcome: 'acquired', grant: 'free', value: 2 },
      { ...N, outcome: 'contended', value: 1 },
      { ...N, outcome: 'acquired', grant: expect.stringMatching(/waited|passed/) as string, value: 1 },
    ]);
    expect([...later.keys()].sort()).toEqual([
      'acquire.duration',
      'extension.duration',
      'held.count',
      'hold.duration',
      'losses',
      'node.count',
      'pending_requests',
      'release.failures',
    ]);
  });

  it('report the error of the estimated clock of Redis, which orders fair calls, from the first of them on [G645]', async () => {
    const server = await redisServer();
    const { telemetry, points } = sdk();
    const locks = await openLocks({ redis: server.url, telemetry, fair: true });
    expect((await points()).get('clock.error')).toBeUndefined();
    await locks.withLock('k', nothing);
    const [error] = (await points()).get('clock.error')!;
    expect(error).toEqual({ registration: 'default', value: expect.any(Number) as number });
    expect(error!.value).toBeGreaterThan(0);
    expect(error!.value).toBeLessThan(5);
  });

  it('that cannot be recorded cost no lock, and a warning says so once [G493]', async () => {
    const record = () => {
      throw new Error('out of series');
    };
    const meter = Object.assign(Object.create(createNoopMeter()) as Meter, { createHistogram: () => ({ record }) });
    const telemetry = otelLocks({ spans: false, meterProvider: { getMeter: () => meter } });
    const locks = await openLocks({ memory: true, telemetry });
    const warnings = warningsOf(locks);
    expect(await locks.withLock('k', () => Promise.resolve('done'))).toBe('done');
    await loopTurn(); // an error of a subscriber of events$ would end the process there
    expect(warnings).toEqual(['The telemetry of locks has failed, and may fail again: Error: out of series.']);
  });
});

describe('otelLocks', () => {
  it('refuses options that it does not have', () => {
    expect(() => otelLocks({ spankeys: true } as never)).toThrow('Did you mean spanKeys?');
    expect(() => otelLocks({ tracerProvider: {} as never })).toThrow('tracerProvider must be');
  });
});
