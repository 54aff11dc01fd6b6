import { setTimeout as sleep } from 'node:timers/promises';
import { commandCalls, scriptCalls } from '../cell/redis-servers.mjs';
import { nowMs, sum } from '../cell/statistics.mjs';

const SECONDS = 20;
const QUICK_SECONDS = 5;
/** From the first call until all have their places, and this much longer until the checks are in step. */
const SETTLE_MS = 5_000;
/**
 * The value of a lock that is never released: in the format of the library, of a process that is not part of the bench.
 */
const HOLDER = 'bench/1/abcdefghijkl/0@0000000000000001+';
const HELD_TTL_MS = 9_000;
/** Some 10 000 calls a second begin to wait. */
const [WAITS_AT_ONCE, PAUSE_MS] = [500, 50];

/**
 * Very many calls that wait while no lock is released: whether they fail, what they ask of Redis, and what happens to
 * the locks that their process holds.
 * @param waits how many calls of each process wait
 * @param areOfOneKey they wait for one key; otherwise each for its own
 * @param held how many other locks each process holds
 */
export function waiting({ title, waits, quickWaits, processes = 1, areOfOneKey = false, held = 0 }) {
  return {
    title,
    kind: 'waiting',
    groups: ['growth'],
    processes,
    terms: { fair: areOfOneKey, waitMs: 300_000 },
    once: true,
    limitMs: 120_000,

    async coordinate({ servers: [{ control }], workers, quick }) {
      const count = quick ? quickWaits : waits;
      const seconds = quick ? QUICK_SECONDS : SECONDS;
      const keys = areOfOneKey ? 1 : count;
      await hold(control, keys);
      const everyWorker = (task, terms) => Promise.all(workers.map((worker) => worker.run(task, terms)));
      if (held > 0) await everyWorker('hold', { held });
      const keysBefore = await control.dbsize();
      await everyWorker('wait', { count, areOfOneKey });
      await sleep(quick ? SETTLE_MS / 2 : SETTLE_MS);
      await control.config('RESETSTAT');
      const begin = nowMs();
      await sleep(seconds * 1_000);
      const perSecond = 1_000 / (nowMs() - begin);
      const commands = (await scriptCalls(control)) * perSecond;
      const calls = (await commandCalls(control)) * perSecond;
      const ends = await everyWorker('look');
      return {
        waits: count * processes,
        failures: sum(ends.map(({ failures }) => failures)),
        error: ends.find(({ error }) => error)?.error,
        commands,
        calls,
        commandsPer1000: commands / ((count * processes) / 1_000),
        queuedShare: ((await control.dbsize()) - keysBefore) / keys,
        ...(held > 0 && { violations: sum(ends.map(({ lost }) => lost)) }),
      };
    },

    tasks: {
      async hold(client, { held: count }) {
        const { contestant } = client;
        const acquiring = Array.from({ length: count }, (_, index) => contestant.hold(`held:${index}`, HELD_TTL_MS));
        client.held = await Promise.all(acquiring);
      },

      /** Not all at once: that is what `burst` does. */
      async wait(client, { count, areOfOneKey: isOne }) {
        client.ends = { failures: 0 };
        const failed = ({ name, message }) => {
          client.ends.failures++;
          client.ends.error ??= `${name}: ${message}`;
        };
        for (let index = 0; index < count; index++) {
          client.contestant.acquire(isOne ? 'awaited:0' : `awaited:${index}`).catch(failed);
          if (index % WAITS_AT_ONCE === 0) await sleep(PAUSE_MS);
        }
      },

      look: ({ ends, held: locks = [] }) => ({ ...ends, lost: locks.filter(({ isHeld }) => !isHeld).length }),
    },
  };
}

/** Locks that nobody releases: `awaited:0` and so on. */
export async function hold(control, count) {
  for (let first = 0; first < count; first += 1_000) {
    const batch = control.pipeline();
    for (let index = first; index < Math.min(count, first + 1_000); index++) {
      batch.set(`lock:{awaited:${index}}`, HOLDER, 'PX', 600_000);
    }
    await batch.exec();
  }
}

const BURST = 300_000;
const QUICK_BURST = 30_000;

/** Very many free locks, requested within one tick. */
export const burst = {
  title: '300 000 free locks (quick: 30 000) wanted in one tick',
  kind: 'burst',
  groups: ['growth'],
  once: true,

  coordinate: ({ workers: [worker], quick }) => worker.run('acquire', { count: quick ? QUICK_BURST : BURST }),

  tasks: {
    async acquire({ contestant }, { count }) {
      let failures = 0;
      let error;
      const failed = ({ name, message }) => {
        failures++;
        error ??= `${name}: ${message}`;
      };
      const begin = nowMs();
      const acquiring = Array.from({ length: count }, (_, index) => contestant.acquire(`burst:${index}`).catch(failed));
      await Promise.all(acquiring);
      return { turns: count, failures, error, ms: nowMs() - begin };
    },
  },
};
