import { setTimeout as sleep } from 'node:timers/promises';
import { farAway } from '../cell/far-away.mjs';
import { commandCalls } from '../cell/redis-servers.mjs';
import { nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';
import { loadContestant } from '../contestants/index.mjs';
import { slice } from './turns-in-slices.mjs';

/** The time of a round trip when round trips are counted, in milliseconds: much longer than all else. */
const FAR_MS = 40;
const FAR_ATTEMPTS = 5;
const FREE_MS = 2_000;
/** This many keys in a ring. Each caller wants some neighbouring keys, from the first of them on. */
const RING = 10;
const CALLERS = 5;
const HOLD_MS = 1;
/** Callers in each process that constantly want one key each, next to a caller that wants all of these keys. */
const SINGLE_CALLERS = 3;

/**
 * Several locks at once: free ones, overlapping sets in two processes, and a set that competes with callers that want
 * its keys one by one.
 */
export function sets({ size }) {
  return {
    title: `Sets of ${size} keys`,
    kind: 'sets',
    groups: ['sets'],
    processes: 3,
    once: true,

    async coordinate({ contestant, servers: [{ port, control }], workers, quick }) {
      const [first, second, third] = workers;
      const way = await farAway(port);
      way.roundTripMs = FAR_MS;
      const farMs = await first.run('acquireFarAway', { contestant, port: way.port, size });
      const free = await first.run('takeFree', { size, ms: quick ? FREE_MS / 4 : FREE_MS });

      await control.config('RESETSTAT');
      const turns = quick ? 20 : 100;
      const begin = nowMs();
      const rings = await Promise.all(
        [first, second].map((worker, at) => worker.run('takeOfRing', { size, turns, at })),
      );
      const ms = nowMs() - begin;
      const waits = sorted(rings.flat());
      const calls = (await commandCalls(control)) / waits.length;

      const limitMs = quick ? 3_000 : 10_000;
      const terms = { size, ms: limitMs };
      const besides = [first.run('takeSingles', terms), second.run('takeSingles', terms)];
      const served = await third.run('takeSetBeside', terms);
      const singles = sum(await Promise.all(besides));
      return {
        roundTrips: farMs / FAR_MS,
        free,
        turns: waits.length,
        rate: (waits.length / ms) * 1_000,
        calls,
        p50Ms: quantile(waits, 0.5),
        p99Ms: quantile(waits, 0.99),
        maxMs: waits.at(-1),
        besideSingles: served / (limitMs / 1_000),
        singles: singles / (limitMs / 1_000),
      };
    },

    tasks: {
      /** The median time of an acquisition over a long distance. */
      async acquireFarAway({ terms }, { contestant, port, size: count }) {
        const { open } = await loadContestant(contestant);
        const far = await open({ ...terms, ports: [port] });
        const delays = [];
        for (let attempt = -1; attempt < FAR_ATTEMPTS; attempt++) {
          const begin = nowMs();
          const set = await far.acquireAll(keysOf(`far:${attempt}`, count));
          if (attempt >= 0) delays.push(nowMs() - begin); // the scripts were loaded before that
          await far.release(set);
        }
        await far.close();
        return quantile(sorted(delays), 0.5);
      },

      async takeFree({ contestant }, { size: count, ms }) {
        let sequence = 0;
        const nextKey = () => keysOf(`free:${sequence++ % 1_000}`, count);
        const side = { contestant: { ...contestant, acquire: contestant.acquireAll }, nextKey };
        await slice(side, { inFlight: 1, sliceMs: ms }); // warm up
        const { latencies } = await slice(side, { inFlight: 1, sliceMs: ms });
        const ascending = sorted(latencies);
        return { p50Ms: quantile(ascending, 0.5), p99Ms: quantile(ascending, 0.99) };
      },

      /** @returns how long each call waited for its locks */
      async takeOfRing({ contestant }, { size: count, turns, at }) {
        const waits = [];
        const caller = async (place) => {
          const keys = Array.from({ length: count }, (_, index) => `ring:${(place + index) % RING}`);
          for (let turn = 0; turn < turns; turn++) {
            const begin = nowMs();
            const set = await contestant.acquireAll(keys);
            waits.push(nowMs() - begin);
            await sleep(HOLD_MS);
            await contestant.release(set);
          }
        };
        await Promise.all(Array.from({ length: CALLERS }, (_, index) => caller(2 * index + at)));
        return waits;
      },

      /** @returns the number of turns of the callers of single keys */
      async takeSingles({ contestant }, { size: count, ms }) {
        const end = nowMs() + ms + 500; // the set gets its turn among them
        let turns = 0;
        const caller = async (key) => {
          while (nowMs() < end) {
            const lock = await contestant.acquire(key);
            await sleep(HOLD_MS);
            await contestant.release(lock);
            turns++;
          }
        };
        const keys = keysOf('beside', count);
        const all = keys.flatMap((key) => Array.from({ length: SINGLE_CALLERS }, () => caller(key)));
        await Promise.race([Promise.all(all), sleep(ms + 1_500)]);
        return turns;
      },

      /** @returns how often one caller held all of them in that time */
      async takeSetBeside({ contestant }, { size: count, ms }) {
        await sleep(500); // the other callers are running
        const end = nowMs() + ms;
        let turns = 0;
        const caller = async () => {
          while (nowMs() < end) {
            const set = await contestant.acquireAll(keysOf('beside', count));
            if (nowMs() < end) turns++;
            await contestant.release(set);
          }
        };
        await Promise.race([caller(), sleep(ms)]);
        return turns;
      },
    },
  };
}

function keysOf(prefix, count) {
  return Array.from({ length: count }, (_, index) => `${prefix}:${index}`);
}
