import { randomUUID } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { runnerImport } from 'vite';
import { library } from '../contestants/library.mjs';
import { createSharedResource } from '../cell/shared-resource.mjs';
import { median, nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';
import { contend, figures } from './contended.mjs';
import { alternate, slicesOf, turns } from './turns-in-slices.mjs';

const SLICES = { sliceMs: 200, rounds: 10, warmUpMs: 2_000 };
const QUICK_SLICES = { sliceMs: 200, rounds: 3, warmUpMs: 1_000 };
const KEYS = 1_000;
const WAITERS = 25;
const CONNECTIONS = 10;
const CYCLES = 100_000;
const HELD = 2_000;
const HELD_TTL_MS = 3_000;
const launcher = fileURLToPath(new URL('../../servers/launch-postgres.ts', import.meta.url));

/** Locks in a table of PostgreSQL, beside what one writes by hand there. All figures are ratios to that in the same run. */
export const sql = {
  title: 'Locks in a table of PostgreSQL',
  kind: 'sql',
  also: ['library'],
  processes: 4,
  limitMs: 240_000,
  once: true,

  async coordinate({ workers, scratch, quick }) {
    const url = await startPostgres();
    const admin = await connected(url);
    const statements = async () => sum(await Promise.all(workers.map((worker) => worker.run('statements'))));
    await admin.query('CREATE TABLE raw_lock (key text PRIMARY KEY, owner text)');
    await Promise.all(workers.map((worker) => worker.run('openSql', { url })));
    const [first, second] = workers;
    const slices = quick ? QUICK_SLICES : SLICES;
    const alone = await first.run('alternateSql', { url, connections: 1, slices: { ...slices, inFlight: 1 } });
    const inFlight = await first.run('alternateSql', {
      url,
      connections: CONNECTIONS,
      slices: { ...slices, inFlight: 200 },
    });

    const count = quick ? 500 : 2_000;
    const sides = { ours: [], advisory: [] };
    for (let round = 0; round < (quick ? 2 : 6); round++) {
      for (const side of Object.keys(sides)) sides[side].push(await contendedRound(workers, side, count, scratch));
    }
    const [ours, advisory] = Object.values(sides).map((rounds) => rounds.slice(1)); // the first one warms up
    const before = await statements();
    const { turns: taken } = await contendedRound(workers, 'ours', count, scratch);
    const perTurn = ((await statements()) - before) / taken;

    const wakes = { ours: [], notify: [] };
    for (let round = 0; round < (quick ? 20 : 100); round++) {
      wakes.ours.push(await wakeUp(first, second, 'ours'));
      wakes.notify.push(await wakeUp(first, second, 'notify'));
    }

    await first.run('cycle', { cycles: quick ? CYCLES / 10 : CYCLES });
    await sleep(500);
    const [{ bytes }] = (await admin.query(`SELECT pg_relation_size('resource_lock') AS bytes`)).rows;

    await first.run('holdMany', { locks: HELD });
    const heldBefore = await statements();
    const since = nowMs();
    await sleep(quick ? 3_000 : 9_000);
    const extended = ((await statements()) - heldBefore) / ((nowMs() - since) / 1_000);

    const rates = (rounds) => rounds.map(({ rate }) => rate);
    return {
      alone: { rate: alone.rate, toRaw: alone.rateToRaw, clientCpuUs: alone.clientCpuUs },
      inFlight: { rate: inFlight.rate, toRaw: inFlight.rateToRaw, clientCpuUs: inFlight.clientCpuUs },
      contended: {
        rate: median(rates(ours)),
        toAdvisory: median(rates(ours).map((rate, at) => rate / rates(advisory)[at])),
        statements: perTurn,
        p99Ms: median(ours.map(({ p99Ms }) => p99Ms)),
      },
      wakeUp: { p50Ms: p50(wakes.ours), toNotify: p50(wakes.ours) / p50(wakes.notify) },
      heldStatements: extended,
      heapKb: Number(bytes) / 1_024,
      violations: sum([...ours, ...advisory].map(({ violations }) => violations)),
    };
  },

  tasks: {
    async openSql(client, { url }) {
      countStatements(client);
      const { composeSqlLocks } = await library('compose/open-sql.js');
      const { service } = await composeSqlLocks({ postgres: url, createTable: true, waitMs: 120_000 }).open();
      client.ours = {
        contestant: {
          acquire: (key) => service.acquire(key),
          release: (lock) => lock.release(),
          hold: (key, ttlMs) => service.acquire(key, { ttlMs }),
        },
        commandsSent: () => 0,
      };
      client.advisory = { contestant: await advisoryLocks(url, WAITERS), commandsSent: () => 0 };
      client.notify = { contestant: await bareNotify(url) };
    },

    async alternateSql({ ours }, { url, connections, slices }) {
      const raw = await rowLocks(url, connections);
      return alternate({ ours: slicesOf(ours.contestant, 'bench', KEYS), raw: slicesOf(raw, 'bench') }, slices, []);
    },

    statements: (client) => client.statements,

    contendSql: (client, { side, ...terms }) => contend(client[side], terms),
    stopSql: (client, { side }) => client[side].stop?.(),
    finishSql: (client, { side }) => client[side].finished,

    async take(client, { side }) {
      client.taken = await client[side].contestant.acquire('wake-up');
    },
    async giveBack(client, { side }) {
      await sleep(20);
      const at = nowMs();
      await client[side].contestant.release(client.taken);
      return at;
    },
    async waitFor(client, { side }) {
      const { contestant } = client[side];
      const lock = await (contestant.wait ?? contestant.acquire)('wake-up');
      const at = nowMs();
      await contestant.release(lock);
      return at;
    },

    cycle({ ours }, { cycles }) {
      let sequence = 0;
      return turns(ours.contestant, () => `cycle:${sequence++ % KEYS}`, { count: cycles, inFlight: 200 });
    },

    async holdMany({ ours }, { locks }) {
      await Promise.all(Array.from({ length: locks }, (_, at) => ours.contestant.hold(`held:${at}`, HELD_TTL_MS)));
      await sleep(HELD_TTL_MS / 3); // into the steady state
    },
  },
};

/** Counts the statements of the library in this process. */
function countStatements(client) {
  client.statements = 0;
  // oxlint-disable-next-line typescript/unbound-method -- called with its client below
  const { query } = pg.Client.prototype;
  pg.Client.prototype.query = function countingQuery(config, ...rest) {
    if (config?.name?.startsWith('nest_redis_lock')) client.statements++;
    return query.call(this, config, ...rest);
  };
}

async function startPostgres() {
  const { module } = await runnerImport(launcher, { configFile: false });
  const { port } = await module.launchPostgres({ dir: mkdtempSync(join(tmpdir(), 'bench-postgres-')) });
  return `postgres://postgres@127.0.0.1:${port}/postgres`;
}

async function connected(url) {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function contendedRound(workers, side, count, scratch) {
  const file = createSharedResource(scratch);
  const all = (task, terms) => workers.map((worker, index) => worker.run(task, { side, ...terms?.(index) }));
  const contending = all('contendSql', (index) => ({
    path: file.path,
    turns: count,
    waiters: WAITERS,
    holdMs: 0,
    firstId: index * WAITERS,
  }));
  await Promise.race(contending);
  await Promise.all(all('stopSql'));
  const parts = await Promise.all(contending);
  await Promise.all(all('finishSql'));
  const { count: written } = file.resource.read();
  file.resource.close();
  return figures({ parts, turns: count, count: written, calls: 0, redisUs: 0 });
}

async function wakeUp(holder, waiter, side) {
  await holder.run('take', { side });
  const waiting = waiter.run('waitFor', { side });
  const releasedAt = await holder.run('giveBack', { side });
  return (await waiting) - releasedAt;
}

function p50(delays) {
  return quantile(sorted(delays), 0.5);
}

/** Rows that are inserted and deleted, on some connections. It does not wait. */
async function rowLocks(url, count) {
  const connections = await Promise.all(
    Array.from({ length: count }, async () => ({ client: await connected(url), last: Promise.resolve() })),
  );
  let sequence = 0;
  // One statement after the other: the client warns of a second one.
  const run = (query) => {
    const connection = connections[sequence++ % count];
    const answer = connection.last.then(() => connection.client.query(query));
    connection.last = answer.catch(() => {});
    return answer;
  };
  return {
    async acquire(key) {
      const owner = randomUUID();
      const text = 'INSERT INTO raw_lock VALUES ($1, $2) ON CONFLICT DO NOTHING';
      const { rowCount } = await run({ name: 'take', text, values: [key, owner] });
      if (rowCount !== 1) throw new Error(`${key} is taken`);
      return { key, owner };
    },
    release: ({ key, owner }) =>
      run({ name: 'give', text: 'DELETE FROM raw_lock WHERE key = $1 AND owner = $2', values: [key, owner] }),
  };
}

/** Advisory locks, which block a connection for each call that waits. */
async function advisoryLocks(url, count) {
  const idle = await Promise.all(Array.from({ length: count }, () => connected(url)));
  return {
    async acquire() {
      const client = idle.pop();
      await client.query({ name: 'lock', text: 'SELECT pg_advisory_lock(42)' });
      return client;
    },
    async release(client) {
      await client.query({ name: 'unlock', text: 'SELECT pg_advisory_unlock(42)' });
      idle.push(client);
    },
  };
}

/** A notification, from one connection to another: what a wake-up costs at least. */
async function bareNotify(url) {
  const [sender, listener] = [await connected(url), await connected(url)];
  await listener.query('LISTEN bench_wake_up');
  return {
    acquire: async () => 'held',
    wait: () => new Promise((resolve) => listener.once('notification', () => resolve('woken'))),
    release: (lock) =>
      lock === 'held' ? sender.query({ name: 'notify', text: `SELECT pg_notify('bench_wake_up', '')` }) : undefined,
  };
}
