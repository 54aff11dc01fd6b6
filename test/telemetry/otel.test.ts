import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { context, createNoopMeter, metrics, SpanStatusCode, trace, type Meter } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Injectable } from '@nestjs/common';
import { Locked, RedisLockModule, type ObservedLocks } from 'nest-redis-lock';
import { otelLocks, type OtelLocksOptions } from 'nest-redis-lock/otel';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { makeApp } from '../support/nest-app.js';
import { loopTurn } from '../../lib/core/time/event-loop.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

const nothing = () => Promise.resolve();

/** Locks that nothing is asked of. */
const UNUSED: ObservedLocks = {
  registration: 'default',
  stats: () => [],
  ping: () => Promise.reject(new Error('asked')),
};

/** The providers of an SDK of its own, and what they have recorded. */
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
    /** The name and the version of each scope that made metrics. */
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

describe('the scope of spans and metrics', () => {
  const root = new URL('../../', import.meta.url);
  const manifest = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as {
    version: string;
    scripts: Record<string, string>;
  };

  it('has the version of the package', async () => {
    const { telemetry, spans, meters } = sdk();
    const locks = await openLocks({ memory: true, telemetry });
    await locks.withLock('order:7', nothing);
    const scope = expect.objectContaining({ name: 'nest-redis-lock', version: manifest.version }) as object;
    expect(spans().map(({ instrumentationScope }) => instrumentationScope)).toEqual([scope, scope]);
    expect(await meters()).toEqual([scope]);
  });

  it('has the next version after a release has raised it', () => {
    const copy = mkdtempSync(join(tmpdir(), 'nest-redis-lock-version-'));
    onTestFinished(() => rmSync(copy, { recursive: true }));
    const example = 'examples/plain/package.json';
    for (const file of ['.ci/version.mjs', 'lib/api/version.ts', example])
      cpSync(new URL(file, root), join(copy, file));
    writeFileSync(join(copy, 'package.json'), '{ "version": "98.7.6-rc.5" }');
    execFileSync(process.execPath, [join(copy, '.ci/version.mjs')]);
    expect(readFileSync(join(copy, 'lib/api/version.ts'), 'utf8')).toContain("VERSION = '98.7.6-rc.5';");
    expect(readFileSync(join(copy, example), 'utf8')).toContain('"nest-redis-lock": "^98.7.6-rc.5"');
    expect(manifest.scripts['version:raise']).toContain('changeset version && node .ci/version.mjs');
  });
});

describe('spans', () => {
  it('have the work below the hold, and the wait beside it, in the trace of the caller [G456]', async () => {
    const { telemetry, tracer, span } = sdk();
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
  });

  it('of permits say so, and how many, while metrics count them like locks, by their label and mode', async () => {
    const OF_MAIL = { registration: 'default', label: 'mail', mode: 'permits' };
    const { telemetry, span, points } = sdk();
    const locks = await openLocks({ memory: true, telemetry });
    await locks.withPermits('mail:1', { limit: 3, permits: 2 }, async () => {
      const of = (all: Map<string, unknown>) => all.get('held.count');
      expect(of(await points())).toEqual([{ ...OF_MAIL, value: 1 }]);
    });
    for (const name of ['acquire mail', 'hold mail']) {
      expect(span(name).attributes).toMatchObject({
        'nest_redis_lock.key': 'mail:1',
        'nest_redis_lock.mode': 'permits',
        'nest_redis_lock.permits': 2,
      });
      expect(span(name).attributes).not.toHaveProperty(['nest_redis_lock.fencing_token']);
    }
    const { 'hold.duration': held, 'acquire.duration': acquired } = Object.fromEntries(await points());
    expect(held).toEqual([{ ...OF_MAIL, end: 'released', value: 1 }]);
    const outcome = { outcome: 'acquired', grant: 'free' };
    expect(acquired).toEqual([{ ...OF_MAIL, ...outcome, value: 1 }]);
  });

  it('are errors where a call fails, by their codes, and not where it goes on without the lock [G457]', async () => {
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

  it('have a loss at the time when it was found', async () => {
    const { telemetry, spans } = sdk();
    const lost = { reason: 'expired', beforeMs: 60_000 } as const;
    telemetry.open(UNUSED).hold!({ registration: 'default', label: 'k', key: 'k', lost }).end();
    const [seconds] = spans()[0]!.events[0]!.time;
    expect(seconds).toBeGreaterThan(Date.now() / 1_000 - 70);
    expect(seconds).toBeLessThan(Date.now() / 1_000 - 55);
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

  it('tell the modes of one label apart', async () => {
    const { telemetry, points } = sdk();
    const locks = await openLocks({ memory: true, telemetry });
    const of = (mode: string) => ({ registration: 'default', label: 'report', mode });
    const reader = await locks.acquire('report:7', { mode: 'shared' });
    const writer = locks.acquire('report:7', { waitMs: 20_000 });
    const now = await points();
    expect(now.get('held.count')).toEqual([
      { ...of('shared'), value: 1 },
      { ...of('exclusive'), value: 0 },
    ]);
    expect(now.get('pending_requests')).toEqual([
      { ...of('shared'), value: 0 },
      { ...of('exclusive'), value: 1 },
    ]);
    expect(locks.stats()).toEqual([{ label: 'report', held: 1, waiting: 1 }]);
    await reader.release();
    const writing = await writer;
    const next = locks.acquire('report:7', { mode: 'shared', waitMs: 20_000 });
    expect((await points()).get('pending_requests')).toEqual([
      { ...of('shared'), value: 1 },
      { ...of('exclusive'), value: 0 },
    ]);
    await writing.release();
    await next;
    await locks.forceRelease('report:7');
    await until(async () => (await points()).get('hold.duration')?.length === 3, { what: 'all three have ended' });
    const later = await points();
    expect(later.get('hold.duration')).toEqual([
      { ...of('shared'), end: 'released', value: 1 },
      { ...of('exclusive'), end: 'released', value: 1 },
      { ...of('shared'), end: 'lost', value: 1 },
    ]);
    expect(later.get('losses')).toContainEqual({ ...of('shared'), reason: 'forced', value: 1 });
    expect(later.get('losses')).toContainEqual({ ...of('exclusive'), reason: 'forced', value: 0 });
  });

  it('tell how well the clock of Redis is known, by which fair calls are ordered, from the first of them on [G645]', async () => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
    const { telemetry, points } = sdk();
    const locks = await openLocks({ redis: server.url, telemetry, fair: true });
    expect((await points()).get('clock.error')).toBeUndefined();
    await locks.withLock('k', nothing);
    const [error] = (await points()).get('clock.error')!;
    expect(error).toEqual({ registration: 'default', value: expect.any(Number) as number });
    expect(error!.value).toBeGreaterThan(0);
    expect(error!.value).toBeLessThan(5);
  });

  it('say that no server votes while Redis is down, although nothing asks for a lock', async () => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
    const { telemetry, points } = sdk();
    await openLocks({ redis: server.url, telemetry });
    const votes = async () => (await points()).get('node.count')?.map(({ value }) => value);
    expect(await votes()).toEqual([1, 0]);
    await server.stop();
    await until(async () => (await votes())?.join() === '0,1', { what: 'no server votes' });
  });

  it('that cannot be recorded cost no lock, and a warning says so once [G493]', async () => {
    const record = () => {
      throw new Error('out of series');
    };
    const meter = Object.assign(Object.create(createNoopMeter()) as Meter, { createHistogram: () => ({ record }) });
    const telemetry = otelLocks({ spans: false, meterProvider: { getMeter: () => meter } });
    const locks = await openLocks({ memory: true, telemetry });
    const warnings: string[] = [];
    locks.events$.subscribe((event) => event.type === 'warning' && warnings.push(event.message));
    expect(await locks.withLock('k', () => Promise.resolve('done'))).toBe('done');
    await loopTurn(); // an error of a subscriber of events$ would end the process there
    expect(warnings).toEqual(['The telemetry of locks has failed, and may again: Error: out of series.']);
  });

  it('count releases that are not confirmed', async () => {
    const { telemetry, points } = sdk();
    const observer = telemetry.open(UNUSED);
    observer.noted!({ type: 'release-failed', key: 'k', label: 'k', owner: 'o', causes: [] });
    expect((await points()).get('release.failures')).toEqual([{ registration: 'default', value: 1 }]);
  });

  it('ask closed locks nothing', async () => {
    const { telemetry, points } = sdk();
    const asked: unknown[] = [];
    const spying = (observed: ObservedLocks) => {
      asked.push(vi.spyOn(observed, 'stats'), vi.spyOn(observed, 'ping'));
      return telemetry.open(observed);
    };
    const locks = await openLocks({ memory: true, telemetry: { open: spying } });
    await locks.withLock('k', nothing);
    const of = { registration: 'default', label: '_key', mode: 'exclusive' };
    expect((await points()).get('held.count')).toEqual([{ ...of, value: 0 }]);
    for (const each of asked) expect(each).toHaveBeenCalledOnce();
    await locks.onApplicationShutdown();
    await points();
    for (const each of asked) expect(each).toHaveBeenCalledOnce();
  });
});

describe('otelLocks', () => {
  it('uses the global providers of the time when the locks are opened', async () => {
    const telemetry = otelLocks();
    const exporter = new InMemorySpanExporter();
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
    onTestFinished(() => {
      trace.disable();
      metrics.disable();
    });
    const locks = await openLocks({ memory: true, telemetry });
    await locks.withLock('k', nothing);
    expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(['acquire _key', 'hold _key']);
  });

  it('refuses options that it does not have', () => {
    expect(() => otelLocks({ spankeys: true } as never)).toThrow('Did you mean spanKeys?');
    expect(() => otelLocks({ tracerProvider: {} as never })).toThrow('tracerProvider must be');
  });

  it('lets two modules register the same locks', async () => {
    const again = RedisLockModule.forRoot({ memory: true, telemetry: otelLocks({ spans: false }) });
    const same = { memory: true, telemetry: otelLocks({ spans: false }) } as const;
    await expect(makeApp({ imports: [again] }, same)).resolves.toBeDefined();
    await expect(makeApp({ imports: [again] }, { memory: true, telemetry: otelLocks() })).rejects.toThrow('telemetry');
  });
});
