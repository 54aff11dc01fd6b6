import { setTimeout as sleep } from 'node:timers/promises';
import { farAway } from '../cell/far-away.mjs';
import { nowMs, quantile, sorted } from '../cell/statistics.mjs';
import { open } from '../contestants/library.mjs';

export const ROUND_TRIPS_MS = [10, 50, 100, 210];
const ATTEMPTS = 20;
const QUICK_ATTEMPTS = 5;
const SETTING = 'commandTimeoutMs';

/**
 * A Redlock with default limits whose nodes are all far away: whether locks can be acquired, and what the library
 * advises if not.
 */
export const redlockFar = {
  title: 'Redlock of 5 with its default limits, all nodes 10, 50, 100 or 210 ms away',
  kind: 'redlock-far',
  groups: ['growth'],
  nodes: 5,
  terms: { ttlMs: 5_000 }, // new nodes do not vote for so long
  once: true,

  async coordinate({ servers, workers: [worker], quick }) {
    const ways = await Promise.all(servers.map(({ port }) => farAway(port)));
    await worker.run('openFar', { ports: ways.map(({ port }) => port) });
    const figures = {};
    for (const roundTripMs of ROUND_TRIPS_MS) {
      for (const way of ways) way.roundTripMs = roundTripMs;
      figures[roundTripMs] = await worker.run('attempt', { attempts: quick ? QUICK_ATTEMPTS : ATTEMPTS });
    }
    return figures;
  },

  tasks: {
    async openFar(client, { ports }) {
      client.far = await open({ ...client.terms, ports });
    },

    async attempt({ far }, { attempts }) {
      const delays = [];
      const errors = [];
      for (let attempt = 0; attempt < attempts; attempt++) {
        const begin = nowMs();
        try {
          const lock = await far.acquire(`far:${attempt}`);
          delays.push(nowMs() - begin);
          await far.release(lock);
        } catch (error) {
          errors.push(error.message);
          await sleep(500); // the abandoned commands are answered
        }
      }
      const { findings } = await far.diagnose();
      return {
        granted: delays.length / attempts,
        p50Ms: quantile(sorted(delays), 0.5),
        errorsThatAdvise:
          errors.length > 0 ? errors.filter((text) => text.includes(SETTING)).length / errors.length : undefined,
        isFound: findings.some(({ message }) => message.includes(SETTING)) ? 'yes' : 'no',
      };
    },
  },
};
