import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { otelLocks } from 'nest-redis-lock/otel';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

const read = (path: string) => readFileSync(fileURLToPath(new URL(`../../docs/${path}`, import.meta.url)), 'utf8');

/** The names of the labels of each metric in a scrape of an application. */
const scraped = new Map<string, Set<string>>();

/** What an application that has had locks, and lost one, shows in its exporter for Prometheus. */
async function scrapeOfLocks(): Promise<void> {
  const exporter = new PrometheusExporter({ preventServerStart: true });
  const meterProvider = new MeterProvider({ readers: [exporter] });
  onTestFinished(() => meterProvider.shutdown());
  const telemetry = otelLocks({ meterProvider });
  const locks = await openLocks({ redis: (await redisServer()).url, fair: true, telemetry });
  const lock = await locks.acquire('order:1');
  await lock.extend();
  await locks.tryAcquire('order:1');
  await locks.withLock('order:2', () => locks.forceRelease('order:2')).catch(() => {});
  await until(async () => (await scrape(exporter)).includes('hold_duration_bucket'), { what: 'the loss is counted' });
  await lock.release();
  for (const [, name, labels] of (await scrape(exporter)).matchAll(/^(\w+)\{(.*)\} \S+$/gm)) {
    const names = [...labels!.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g)].map(([, label]) => label!);
    scraped.set(name!, new Set([...(scraped.get(name!) ?? []), ...names]));
  }
}

/** What Prometheus would get. */
function scrape(exporter: PrometheusExporter): Promise<string> {
  return new Promise((end) => {
    const response = { setHeader() {}, end } as unknown as ServerResponse;
    exporter.getMetricsRequestHandler({} as IncomingMessage, response);
  });
}

/** The metrics and the labels that a query names; `instance` comes from Prometheus. */
function namesIn(query: string): { metrics: string[]; labels: string[] } {
  const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(query) ?? [];
  if (metric && label) return { metrics: [metric], labels: [label] };
  const text = query.replaceAll('${suffix}', '').replaceAll(/"[^"]*"/g, '""');
  const inBraces = [...text.matchAll(/\{([^}]*)\}/g)].flatMap(([, all]) => [...all!.matchAll(/(\w+)(?=[=!])/g)]);
  const grouped = [...text.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, all]) => [...all!.matchAll(/\w+/g)]);
  const rest = text.replaceAll(/\{[^}]*\}/g, '').replaceAll(/\bby \([^)]*\)/g, '');
  return {
    metrics: [...rest.matchAll(/\bnest_redis_lock_\w+/g)].map(([name]) => name),
    labels: [...inBraces, ...grouped].map(([name]) => name).filter((name) => name !== 'instance'),
  };
}

function unknownIn(query: string): string[] {
  const { metrics, labels } = namesIn(query);
  if (metrics.length === 0) return [`no metric in ${query}`];
  const known = metrics.flatMap((metric) => [...(scraped.get(metric) ?? [])]);
  return [...metrics.filter((metric) => !scraped.has(metric)), ...labels.filter((label) => !known.includes(label))];
}

interface Dashboard {
  panels: { title: string; targets: { expr: string }[] }[];
  templating: { list: { type: string; query: string }[] };
}

const familyOf = (metric: string) =>
  metric.replace(/_(bucket|count|sum|total)$/, (end, which: string) =>
    /(held|node)_count$/.test(metric) && which === 'count' ? end : '',
  );

it('the dashboard, the alerts and the page on telemetry name the metrics and labels that there are, and leave out none', async () => {
  await scrapeOfLocks();
  const dashboard = JSON.parse(read('telemetry/grafana-dashboard.json')) as Dashboard;
  const ofVariables = dashboard.templating.list.filter(({ type }) => type === 'query').map(({ query }) => query);
  const ofPanels = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  const alerts = [...read('telemetry/alerts.yml').matchAll(/expr: \|\n((?: {10}.*\n)+)/g)].map(([, expr]) => expr!);
  expect([ofPanels.length > 10, ofVariables.length, alerts.length]).toEqual([true, 2, 6]);
  expect([...ofPanels, ...ofVariables, ...alerts].flatMap(unknownIn)).toEqual([]);
  const names = [...scraped.keys()].filter((name) => name.startsWith('nest_redis_lock_'));
  const families = [...new Set(names.map(familyOf))].sort();
  expect(families).toHaveLength(9);
  expect([...new Set(ofPanels.flatMap((query) => namesIn(query).metrics.map(familyOf)))].sort()).toEqual(families);
  const listed = [...read('telemetry.md').matchAll(/^\| `(nest_redis_lock\.[a-z._]+)`/gm)].map(([, name]) => name!);
  expect(listed.map((name) => name.replaceAll('.', '_')).sort()).toEqual(families);
});
