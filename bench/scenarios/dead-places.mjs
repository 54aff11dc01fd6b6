import { setTimeout as sleep } from 'node:timers/promises';
import { openMany } from '../contestants/library.mjs';
import { nowMs, sum } from '../cell/statistics.mjs';

const KEY = 'hot';
/** The lock that no process dies for. */
const OTHER_KEY = 'undisturbed';
/** Two processes with ten lock services each, which are twenty processes for Redis. */
const [DYING_PROCESSES, SERVICES_EACH] = [2, 10];
const DEAD = DYING_PROCESSES * SERVICES_EACH;
const HOLD_MS = 5;
/** After this time, each has asked once more, and reported whether it listens. */
const CHECKED_MS = 1_500;

/**
 * How many turns of a lock two other processes get when twenty processes were killed that waited for it for the first
 * time.
 */
export function deadPlaces({ title, masters }) {
  return {
    title,
    kind: 'dead-places',
    groups: ['growth'],
    masters,
    processes: DYING_PROCESSES + 1,
    once: true,
    limitMs: 120_000,

    async coordinate({ servers, workers: [alive, ...dying], quick }) {
      const ms = quick ? 6_000 : 20_000;
      await alive.run('openTwo');
      const undisturbed = [];
      const takeTurnsUndisturbed = async () => {
        const { turns } = await alive.run('takeTurns', { key: OTHER_KEY, ms: ms / 2 });
        undisturbed.push(turns);
      };
      await alive.run('takeTurns', { key: OTHER_KEY, ms: 1_000 }); // warm up
      await takeTurnsUndisturbed();
      await alive.run('hold');
      for (const worker of dying) worker.run('waitInMany').catch(() => {}); // it is killed
      await queued(servers, DEAD);
      await sleep(CHECKED_MS);
      const takingTurns = alive.run('takeTurns', { key: KEY, ms, isBehindHolder: true });
      await queued(servers, DEAD + 2);
      for (const worker of dying) worker.kill();
      await sleep(200); // Redis has noticed that their connections are closed
      await alive.run('release');
      const { turns, longestPauseMs } = await takingTurns;
      await takeTurnsUndisturbed(); // before and after: the machine may do other work in between
      return { turns, undisturbed: sum(undisturbed), share: turns / sum(undisturbed), longestPauseMs };
    },

    tasks: {
      async openTwo(client) {
        client.alive = await openMany(client.terms, 2);
      },

      async hold(client) {
        client.lock = await client.contestant.acquire(KEY);
        client.isReleased = new Promise((resolve) => (client.released = resolve));
      },

      release({ contestant, lock, released }) {
        released();
        return contestant.release(lock);
      },

      async waitInMany({ terms }) {
        const services = await openMany(terms, SERVICES_EACH);
        await Promise.all(services.map((service) => service.acquire(KEY)));
      },

      takeTurns,
    },
  };
}

/** Two services take the lock again and again for this time; behind a holder, the time begins at its release. */
async function takeTurns(client, { key, ms, isBehindHolder = false }) {
  let isOver = false;
  let turns = 0;
  let longestPauseMs = 0;
  let freeSince = nowMs();
  const take = async (service) => {
    while (!isOver) {
      const lock = await service.acquire(key);
      longestPauseMs = Math.max(longestPauseMs, nowMs() - freeSince);
      await sleep(HOLD_MS);
      freeSince = nowMs();
      await service.release(lock);
      if (!isOver) turns++;
    }
  };
  const taking = Promise.all(client.alive.map(take));
  if (isBehindHolder) await client.isReleased;
  freeSince = nowMs();
  await sleep(ms);
  isOver = true;
  if (!isBehindHolder) await taking; // behind the dead it may take forever
  return { turns, longestPauseMs: Math.max(longestPauseMs, turns === 0 ? ms : 0) };
}

/** Waits until this many are in the queue of the lock. */
async function queued(servers, count) {
  // The other nodes of a Cluster answer with an error.
  const inQueue = ({ control }) => control.zcount(`lock:{${KEY}}:queue`, '(0', '+inf').catch(() => 0);
  while (sum(await Promise.all(servers.map(inQueue))) < count) await sleep(10);
}
