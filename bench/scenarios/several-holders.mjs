import { setTimeout as sleep } from 'node:timers/promises';
import { scriptCalls } from '../cell/redis-servers.mjs';
import { median, quantile, sorted, sum } from '../cell/statistics.mjs';

const PROCESSES = 4;
const EACH = 25;
const WARM_UP_MS = 4_000;

/** Calls that want permits of one key, again and again. */
export function permits({ title, holdMs }) {
  return {
    title,
    kind: 'permits',
    also: ['library', 'redis-semaphore'],
    processes: PROCESSES,
    coordinate: (cell) => measured(cell, { holdMs, limit: 3 }),
    tasks: { take },
  };
}

/**
 * Calls that share a lock, again and again, while another call wants it exclusively ten times a second; and the same
 * calls without sharing.
 */
export function readers({ title, holdMs }) {
  return {
    title,
    kind: 'readers',
    also: ['library'],
    processes: PROCESSES,
    async coordinate(cell) {
      const shared = await measured(cell, { holdMs, mode: 'shared', writesEveryMs: 100 });
      const alone = await measured(cell, { holdMs, mode: 'exclusive' });
      return { ...shared, exclusiveRate: alone.rate };
    },
    tasks: { take },
  };
}

async function measured({ servers: [{ control }], workers, quick }, terms) {
  const everyWorker = (ms) => Promise.all(workers.map((worker, index) => worker.run('take', { ...terms, ms, index })));
  await everyWorker(quick ? WARM_UP_MS / 4 : WARM_UP_MS);
  await control.config('RESETSTAT');
  const ms = quick ? 1_500 : 4_000;
  const parts = await everyWorker(ms);
  const turns = sum(parts.map((part) => part.turns));
  const waits = sorted(parts.flatMap((part) => part.waits));
  const writes = sorted(parts.flatMap((part) => part.writes));
  return {
    turns,
    rate: (turns / ms) * 1_000,
    commands: (await scriptCalls(control)) / turns,
    p50Ms: quantile(waits, 0.5),
    p99Ms: quantile(waits, 0.99),
    writes: writes.length,
    writeP50Ms: writes.length > 0 ? median(writes) : undefined,
    writeLongestMs: writes.at(-1),
  };
}

async function take({ contestant }, { limit, mode, holdMs, ms, writesEveryMs, index }) {
  const key = limit ? 'permits' : `readers-${mode}`;
  const acquire = limit
    ? () => contestant.acquirePermits(key, limit)
    : () => contestant.acquire(key, mode === 'shared' ? { mode } : undefined);
  const end = performance.now() + ms;
  const [waits, writes] = [[], []];
  let turns = 0;
  const again = async () => {
    while (performance.now() < end) {
      const since = performance.now();
      const held = await acquire();
      waits.push(performance.now() - since);
      if (holdMs > 0) await sleep(holdMs);
      await contestant.release(held);
      turns++;
    }
  };
  const write = async () => {
    while (performance.now() < end) {
      await sleep(writesEveryMs);
      const since = performance.now();
      const held = await contestant.acquire(key);
      writes.push(performance.now() - since);
      await contestant.release(held);
    }
  };
  const writer = writesEveryMs && index === 0 ? [write()] : [];
  await Promise.all([...Array.from({ length: EACH }, again), ...writer]);
  return { turns, waits, writes };
}
