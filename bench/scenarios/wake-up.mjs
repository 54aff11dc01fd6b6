import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs, quantile, sorted } from '../cell/statistics.mjs';

const KEYS = 25;
/** The measured work is first done for this long, with shorter holds, so that all of its code is compiled. */
const WARM_UP_MS = 10_000;
const QUICK_WARM_UP_MS = 2_000;
const WARM_UP_HOLD_MS = 10;

/**
 * One process holds the lock, another waits: the time from the call of release in the first to the return of acquire in
 * the other, by the clock that all processes of a machine share. Holds differ in length; otherwise a peer that polls
 * every 250 ms could seem prompt. Several locks are in use in parallel, a little apart.
 */
export function wakeUp({ title, holdMs: [leastMs, mostMs], groups, also }) {
  return {
    title,
    kind: 'wake-up',
    groups,
    also,
    baseline: 'raw-queue',
    processes: 2,

    async coordinate({ workers: [holder, waiter], quick }) {
      const rounds = quick ? 2 : 6;
      const keys = Array.from({ length: KEYS }, (_, index) => `wake-up:${index}`);
      await holder.run('prepare', { keys });
      const wake = async (key, holdMs) => {
        await holder.run('take', { key });
        const waiting = waiter.run('wait', { key });
        const releasedAt = await holder.run('release', { key, holdMs });
        return (await waiting) - releasedAt;
      };
      const end = nowMs() + (quick ? QUICK_WARM_UP_MS : WARM_UP_MS);
      const warmUp = async (key, index) => {
        while (nowMs() < end) await wake(key, WARM_UP_HOLD_MS + index);
      };
      await Promise.all(keys.map(warmUp));
      const delays = [];
      const measure = async (key, index) => {
        await sleep((index * leastMs) / KEYS);
        for (let round = 0; round < rounds; round++)
          delays.push(await wake(key, leastMs + ((index * 7 + round * 83) % (mostMs - leastMs))));
      };
      await Promise.all(keys.map(measure));
      const ascending = sorted(delays);
      return {
        turns: ascending.length,
        p50Ms: quantile(ascending, 0.5),
        p99Ms: quantile(ascending, 0.99),
        maxMs: ascending.at(-1),
        violations: delays.filter((delay) => delay < 0).length,
      };
    },

    tasks: {
      async take(client, { key }) {
        client.taken ??= new Map();
        client.taken.set(key, await client.contestant.acquire(key));
      },

      async release({ contestant, taken }, { key, holdMs }) {
        await sleep(holdMs);
        const releasedAt = nowMs();
        await contestant.release(taken.get(key));
        return releasedAt;
      },

      async wait({ contestant }, { key }) {
        const lock = await contestant.acquire(key);
        const acquiredAt = nowMs();
        await contestant.release(lock);
        return acquiredAt;
      },
    },
  };
}
