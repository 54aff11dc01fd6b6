/**
 * The cost of telemetry: the CPU time of this process for a `withLock` on one Redis, with nothing subscribed, with a subscriber to the tracing channels,
 * and with the spans and metrics of OpenTelemetry, whose SDK records every span and exports none.
 *
 *     npm run build && node bench/telemetry.mjs [rounds]
 */
import { tracingChannel } from 'node:diagnostics_channel';
import { context } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { startRedisServers } from './cell/redis-servers.mjs';
import { library } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';

const ROUNDS = Number(process.argv[2] ?? 7);
const ROUND_MS = 1_000;
const LOADS = { 'one at a time': 1, '200 in flight': 200 };

const { openLocks } = await library('compose/open-locks.js');
const { otelLocks } = await library('otel/index.js');

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const toNowhere = { export: (_spans, done) => done({ code: 0 }), shutdown: () => Promise.resolve() };
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(toNowhere)] });
const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
const meterProvider = new MeterProvider({
  readers: [new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })],
});

await provideRedisServer();
const [server] = await startRedisServers(1);
const redis = `redis://127.0.0.1:${server.port}`;
const open = async (telemetry) => (await openLocks({ redis, telemetry })).service;
const plain = await open();
const channels = ['nest-redis-lock:acquire', 'nest-redis-lock:hold'].map((name) => tracingChannel(name));
const heard = Object.fromEntries(['start', 'end', 'asyncStart', 'asyncEnd', 'error'].map((at) => [at, () => {}]));
const WAYS = {
  'nothing subscribed': { locks: plain },
  'tracing channels': {
    locks: plain,
    begin: () => channels.forEach((each) => each.subscribe(heard)),
    end: () => channels.forEach((each) => each.unsubscribe(heard)),
  },
  'metrics of OpenTelemetry': { locks: await open(otelLocks({ spans: false, meterProvider })) },
  'spans and metrics': { locks: await open(otelLocks({ tracerProvider, meterProvider })) },
};

const results = {};
for (let round = -1; round < ROUNDS; round++) {
  for (const [load, width] of Object.entries(LOADS)) {
    for (const [way, { locks, begin, end }] of Object.entries(WAYS)) {
      begin?.();
      const microseconds = await run(locks, width);
      end?.();
      if (round >= 0) ((results[load] ??= {})[way] ??= []).push(microseconds); // the first round is the warm-up
    }
  }
}
for (const [load, ways] of Object.entries(results)) {
  const base = median(ways['nothing subscribed']);
  for (const [way, times] of Object.entries(ways)) {
    console.log(`${load}, ${way}: ${median(times).toFixed(1)} µs, ${(median(times) / base).toFixed(2)}`);
  }
}
for (const { locks } of Object.values(WAYS)) await locks.onApplicationShutdown();
await meterProvider.shutdown();
server.kill();

/** @returns CPU time of one call, in microseconds: unlike throughput, it hardly depends on other work of the machine */
async function run(locks, width) {
  let calls = 0;
  const until = performance.now() + ROUND_MS;
  const since = process.cpuUsage();
  const caller = async (_, index) => {
    for (; performance.now() < until; calls++) await locks.withLock(`order:${index}`, async () => {});
  };
  await Promise.all(Array.from({ length: width }, caller));
  const { user, system } = process.cpuUsage(since);
  return (user + system) / calls;
}

function median(values) {
  return [...values].sort((a, b) => a - b)[values.length >> 1];
}
