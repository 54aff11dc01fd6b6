import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { library } from '../contestants/library.mjs';
import { createSharedResource } from '../cell/shared-resource.mjs';
import { median, nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';
import { contend, figures } from './contended.mjs';
import { DATABASES } from './sql-databases.mjs';
import { alternate, slicesOf, turns } from './turns-in-slices.mjs';

const SLICES = { sliceMs: 200, rounds: 10, warmUpMs: 2_000 };
const QUICK_SLICES = { sliceMs: 200, rounds: 3, warmUpMs: 1_000 };
const KEYS = 1_000;
const WAITERS = 25;
const CONNECTIONS = 10;
const CYCLES = 100_000;
const HELD = 2_000;
const HELD_TTL_MS = 3_000;

/**
 * Locks in a table, next to handwritten locks in that database. All figures are ratios to the handwritten locks in the
 * same run.
 * @param id of the database
 */
export const sql = ({ title, id }) => ({
  title,
  kind: 'sql',
  also: ['library'],
  processes: 4,
  limitMs: 240_000,
  once: true,

  async coordinate({ workers, scratch, quick }) {
    const database = DATABASES[id];
    const url = await database.start();
    const sent = async () => sum(await Promise.all(workers.map((worker) => worker.run('sent'))));
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
    const [ours, advisory] = Object.values(sides).map((rounds) => rounds.slice(1)); // the first one is the warm-up
    const before = await sent();
    const { turns: taken } = await contendedRound(workers, 'ours', count, scratch);
    const perTurn = ((await sent()) - before) / taken;

    const wakes = { ours: [], notify: [] };
    for (let round = 0; round < (quick ? 20 : 100); round++) {
      wakes.ours.push(await wakeUp(first, second, 'ours'));
      if (database.notify) wakes.notify.push(await wakeUp(first, second, 'notify'));
    }

    await first.run('cycle', { cycles: quick ? CYCLES / 10 : CYCLES });
    await sleep(500);
    const bytes = await database.tableBytes(await database.connect(url));

    await first.run('holdMany', { locks: HELD });
    const heldBefore = await sent();
    const since = nowMs();
    await sleep(quick ? 3_000 : 9_000);
    const extended = ((await sent()) - heldBefore) / ((nowMs() - since) / 1_000);

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
      wakeUp: { p50Ms: p50(wakes.ours), toNotify: database.notify && p50(wakes.ours) / p50(wakes.notify) },
      heldStatements: extended,
      heapKb: bytes / 1_024,
      violations: sum([...ours, ...advisory].map(({ violations }) => violations)),
    };
  },

  tasks: {
    async openSql(client, { url }) {
      const database = DATABASES[id];
      client.sent = 0;
      database.countSent(() => client.sent++);
      const { composeLocks } = await library('compose/composition.js');
      const { SQL } = await library('compose/sql-lock-options.js');
      const options = { ...database.options(url), createTable: true, waitMs: 120_000 };
      const { service } = await composeLocks(SQL, options).open();
      client.ours = {
        contestant: {
          acquire: (key) => service.acquire(key),
          release: (lock) => lock.release(),
          hold: (key, ttlMs) => service.acquire(key, { ttlMs }),
        },
        commandsSent: () => 0,
      };
      client.advisory = { contestant: await advisoryLocks(database, url, WAITERS), commandsSent: () => 0 };
      client.notify = { contestant: await database.notify?.(url) };
    },

    async alternateSql({ ours }, { url, connections, slices }) {
      const raw = await rowLocks(DATABASES[id], url, connections);
      return alternate({ ours: slicesOf(ours.contestant, 'bench', KEYS), raw: slicesOf(raw, 'bench') }, slices, []);
    },

    sent: (client) => client.sent,

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
});

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

/** Rows that are inserted and deleted on several connections. It does not wait. */
async function rowLocks(database, url, count) {
  const connections = await Promise.all(
    Array.from({ length: count }, async () => ({ client: await database.connect(url), last: Promise.resolve() })),
  );
  let sequence = 0;
  // One statement after the other: the client of PostgreSQL warns about a second one.
  const run = (work) => {
    const connection = connections[sequence++ % count];
    const answer = connection.last.then(() => work(connection.client));
    connection.last = answer.catch(() => {});
    return answer;
  };
  return {
    async acquire(key) {
      const owner = randomUUID();
      if (!(await run((client) => database.take(client, key, owner)))) throw new Error(`${key} is taken`);
      return { key, owner };
    },
    release: ({ key, owner }) => run((client) => database.give(client, key, owner)),
  };
}

/** Advisory locks: each waiting call blocks a connection. */
async function advisoryLocks(database, url, count) {
  const idle = await Promise.all(Array.from({ length: count }, () => database.connect(url)));
  return {
    async acquire() {
      const client = idle.pop();
      await database.lock(client);
      return client;
    },
    async release(client) {
      await database.unlock(client);
      idle.push(client);
    },
  };
}
