import { setTimeout as sleep } from 'node:timers/promises';
import { connectAll } from '../contestants/clients.mjs';
import { open as openRawQuorum } from '../contestants/raw-quorum.mjs';
import { nowMs } from '../cell/statistics.mjs';
import { alternate, freshKeys, slicesOf, turns } from './turns-in-slices.mjs';

const TTL_MS = 10_000;
const STAGE_LIMIT_MS = 8_000; // a stage takes two or three seconds
const ANSWER_LIMIT_MS = 5_000;
const ATTEMPTS = 3;
const FULL = { sliceMs: 100, rounds: 8, warmUpMs: 1_000 };
const QUICK = { sliceMs: 50, rounds: 4, warmUpMs: 600 };
/** The first second of a process, as after a deployment, or in a function. */
const COLD = { sliceMs: 50, rounds: 20, warmUpMs: 300 };
/** Before the first stage with fresh keys, all code is compiled, as in a process that has been up for a while. */
const FIRST_WARM_UP_MS = 5_000;
const COUNTED_TURNS = 2_000;

const KEY_COUNT = 200;

/**
 * A Redlock of five nodes, which are stopped one after the other: they hang, but are not dead.
 * @param isFresh each key is used once; otherwise keys are reused, and there is a stage without a majority
 */
export function redlock({ title, isFresh }) {
  return {
    title,
    kind: isFresh ? 'redlock-fresh' : 'redlock',
    groups: ['redlock'],
    baseline: 'raw-quorum',
    counts: isFresh,
    nodes: 5,
    terms: { ttlMs: TTL_MS, waitMs: undefined }, // how long, and how often, they try: their own defaults

    async coordinate({ servers, workers: [worker], quick, counting }) {
      if (counting) return worker.run('count');
      const stages = {};
      for (let stopped = 0; stopped <= 2; stopped++) {
        if (stopped > 0) servers[stopped - 1].stop();
        const ports = servers.slice(stopped).map(({ port }) => port);
        const slices = { inFlight: 1, keyCount: isFresh ? undefined : KEY_COUNT, ...(quick ? QUICK : FULL) };
        if (isFresh && stopped === 0) slices.warmUpMs = FIRST_WARM_UP_MS;
        stages[stopped] = await inTime(
          worker.run('alternate', { slices, ports }),
          STAGE_LIMIT_MS + 2 * slices.warmUpMs,
        );
        if (stages[stopped].failure) return stages; // its next turns would wait behind the one that hangs
      }
      if (isFresh) return stages;
      servers[2].stop();
      stages[3] = await worker.run('fail');
      return stages;
    },

    tasks: { alternate: alternateWithQuorum, count, fail },
  };
}

async function alternateWithQuorum(client, { slices, ports }) {
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
  const { keyCount } = slices;
  const sides = { ours: slicesOf(counting, 'bench', keyCount), raw: slicesOf(raw, 'raw', keyCount) };
  const figures = await alternate(sides, slices, controls);
  for (const control of controls) control.disconnect();
  return { ...figures, failures, error };
}

async function count({ contestant, commandsSent }) {
  const nextKey = freshKeys('bench');
  const terms = { count: COUNTED_TURNS, inFlight: 1 };
  await turns(contestant, nextKey, terms); // warm-up: it loads the scripts
  const before = commandsSent();
  await turns(contestant, nextKey, terms);
  return { commands: (commandsSent() - before) / COUNTED_TURNS };
}

/** With a majority stopped: how long until the library says that there is no lock. */
async function fail({ contestant }) {
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
}

async function inTime(stage, limitMs) {
  const failure = `no end within ${limitMs / 1_000} s: a turn hangs`;
  return Promise.race([stage, sleep(limitMs, { failure })]);
}

/** The same in the first second of a process, with all nodes. The raw quorum is in the same process. */
export const redlockCold = {
  title: 'Redlock of 5, the first second of a process',
  kind: 'redlock-cold',
  groups: ['redlock'],
  baseline: 'raw-quorum',
  nodes: 5,
  terms: { ttlMs: TTL_MS, waitMs: undefined },

  async coordinate({ servers, workers: [worker] }) {
    const ports = servers.map(({ port }) => port);
    const slices = { inFlight: 1, keyCount: KEY_COUNT, ...COLD };
    return { 0: await worker.run('alternate', { slices, ports }) };
  },

  tasks: { alternate: alternateWithQuorum },
};
