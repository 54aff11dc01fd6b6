import { setTimeout as sleep } from 'node:timers/promises';
import { connectAll } from '../contestants/clients.mjs';
import { open as openRawQuorum } from '../contestants/raw-quorum.mjs';
import { nowMs } from '../cell/statistics.mjs';
import { alternate } from './turns-in-slices.mjs';

const TTL_MS = 10_000;
const STAGE_LIMIT_MS = 8_000; // a stage takes two or three seconds
const ANSWER_LIMIT_MS = 5_000;
const ATTEMPTS = 3;
const FULL = { sliceMs: 100, pairs: 8, warmUpMs: 1_000, keyCount: 200 };
const QUICK = { sliceMs: 50, pairs: 4, warmUpMs: 600, keyCount: 200 };

/** Redlock of five nodes, of which one after the other is stopped: it hangs, it is not dead. */
export const redlock = {
  title: 'Redlock of 5, with 0, 1, 2 and 3 nodes stopped',
  kind: 'redlock',
  groups: ['redlock'],
  baseline: 'raw-quorum',
  nodes: 5,
  terms: { ttlMs: TTL_MS, waitMs: undefined }, // how long, and how often, they try: their own defaults

  async coordinate({ servers, workers: [worker], quick }) {
    const stages = {};
    for (let stopped = 0; stopped <= 2; stopped++) {
      if (stopped > 0) servers[stopped - 1].stop();
      const ports = servers.slice(stopped).map(({ port }) => port);
      const slices = { inFlight: 1, ...(quick ? QUICK : FULL) };
      stages[stopped] = await inTime(worker.run('alternate', { slices, ports }));
      if (stages[stopped].failure) return stages; // its next turns would stand behind the one that hangs
    }
    servers[2].stop();
    stages[3] = await worker.run('fail');
    return stages;
  },

  tasks: {
    async alternate(client, { slices, ports }) {
      client.raw ??= await openRawQuorum(client.terms);
      const controls = await connectAll(ports);
      const { contestant, raw } = client;
      let failures = 0;
      let error;
      const counting = {
        acquire: async (key) => {
          try {
            return await contestant.acquire(key);
          } catch (reason) {
            failures++;
            error ??= `${reason.name}: ${reason.message}`;
            return undefined;
          }
        },
        release: (lock) => lock && contestant.release(lock),
      };
      const figures = await alternate(counting, raw, slices, controls);
      for (const control of controls) control.disconnect();
      return { ...figures, failures, error };
    },

    /** With a majority stopped: how long until it is said that there is no lock. */
    async fail({ contestant }) {
      const attempts = [];
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const begin = nowMs();
        const outcome = contestant.acquire(`failing:${attempt}`).then(
          () => 'acquired',
          ({ name, message }) => `${name}: ${message}`,
        );
        const error = await Promise.race([outcome, sleep(ANSWER_LIMIT_MS, 'no answer')]);
        attempts.push({ ms: nowMs() - begin, error });
        if (error === 'no answer') break;
      }
      return {
        errorMs: Math.max(...attempts.map(({ ms }) => ms)),
        error: attempts[0].error,
        failures: attempts.filter(({ error }) => error === 'acquired').length,
      };
    },
  },
};

async function inTime(stage) {
  const failure = `no end within ${STAGE_LIMIT_MS / 1_000} s: a turn hangs`;
  return Promise.race([stage, sleep(STAGE_LIMIT_MS, { failure })]);
}
