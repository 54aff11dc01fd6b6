import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs, quantile, sorted } from '../cell/statistics.mjs';
import { open } from '../contestants/library.mjs';

const KEY = 'leader';
const TTL_MS = 1_000;
const ROUNDS = { resign: 40, close: 40, wake: 40 };
const QUICK_ROUNDS = { resign: 20, close: 20, wake: 20 };
/** The waiting process has waited this long: by then even a service that was just opened listens. */
const SETTLED_MS = 100;
/** Processes that are killed while they lead. */
const DYING = 6;

/**
 * The time from the end of a leader until the waiting process leads, next to the hand-over of a lock between the same
 * two processes.
 */
export const leader = {
  title: 'Failover of a leader, ttl 1 s: by resign, by close, by kill -9',
  kind: 'leader',
  groups: ['growth'],
  processes: 2 + DYING,
  once: true,

  async coordinate({ servers: [{ control }], workers: [one, other, ...dying], quick }) {
    const rounds = quick ? QUICK_ROUNDS : ROUNDS;
    const pair = [one, other];
    /** Each in turn hands over to the other, which waits; in the end neither holds the lock. */
    const handOvers = async (count, key, { wait, handOver, end }) => {
      await wait(one, key);
      const delays = [];
      for (let round = 0; round < count; round++) {
        const [from, to] = round % 2 === 0 ? pair : pair.toReversed();
        const waiting = wait(to, key);
        await untilQueued(control, key);
        const at = await handOver(from);
        delays.push((await waiting) - at);
      }
      for (const worker of pair) await end(worker);
      return sorted(delays);
    };
    const release = (worker) => worker.run('release');
    const take = { wait: (worker, key) => worker.run('take', { key }), handOver: release, end: release };
    await handOvers(rounds.wake, 'wake', take); // warm up
    const wakes = await handOvers(rounds.wake, 'wake', take);

    const lead = (worker) => worker.run('lead');
    const close = (worker) => worker.run('close');
    const resign = (worker) => worker.run('resign');
    const resigns = await handOvers(rounds.resign, KEY, { wait: lead, handOver: resign, end: close });
    const closes = await handOvers(rounds.close, KEY, { wait: lead, handOver: close, end: close });

    const deaths = [];
    for (const worker of quick ? dying.slice(0, 3) : dying) {
      await worker.run('lead');
      const waiting = one.run('lead');
      await untilQueued(control, KEY);
      const at = nowMs();
      worker.kill();
      deaths.push((await waiting) - at);
      await close(one);
    }
    const of = (delays) => ({ p50Ms: quantile(delays, 0.5), maxMs: delays.at(-1) });
    const wake = of(wakes);
    const toWake = (delays) => ({ ...of(delays), toWake: quantile(delays, 0.5) / wake.p50Ms });
    return {
      wake,
      resign: toWake(resigns),
      close: toWake(closes),
      kill: { maxMs: Math.max(...deaths), overTtlMs: Math.max(...deaths) - TTL_MS },
    };
  },

  tasks: {
    async take(client, { key }) {
      client.lock = await client.contestant.acquire(key);
      return nowMs();
    },

    async release(client) {
      const at = nowMs();
      await client.contestant.release(client.lock);
      return at;
    },

    /**
     * Takes part from now on, with its own service.
     * @returns when it leads
     */
    async lead(client) {
      client.locks ??= await open(client.terms);
      client.leader = client.locks.leader(KEY, { ttlMs: TTL_MS });
      return new Promise((resolve) => {
        const states = client.leader.state$.subscribe(({ status }) => {
          if (status !== 'leading') return;
          resolve(nowMs());
          setImmediate(() => states.unsubscribe());
        });
      });
    },

    async resign({ leader: own }) {
      const at = nowMs();
      await own.resign();
      return at;
    },

    async close(client) {
      const { locks } = client;
      client.locks = undefined;
      const at = nowMs();
      await locks?.close();
      return at;
    },
  },
};

/** Waits until one process has been in the queue of the lock for a while. */
async function untilQueued(control, key) {
  while ((await control.zcount(`lock:{${key}}:queue`, '(0', '+inf')) === 0) await sleep(1);
  await sleep(SETTLED_MS);
}
