import { setTimeout as sleep } from 'node:timers/promises';
import { commandCalls, redisCpuUs } from '../cell/redis-servers.mjs';
import { createSharedResource, SharedResource } from '../cell/shared-resource.mjs';
import { cpuUs, median, nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';

const KEY = 'contended';
const TURNS = 1_000;
/**
 * The measured work is first done for this long, so that all of its code is compiled, including the code of the
 * scenario. With four processes on two cores that takes ten seconds: until then, the compilers take the processors from
 * the holder of the lock.
 */
const WARM_UP = { leastMs: 10_000, rounds: 5, mostMs: 12_000 };
/** For scenarios in which nothing is timed, or the time means little. */
const SHORT_WARM_UP = { leastMs: 1_500, rounds: 5, mostMs: 6_000 };
/** The number of measured rounds, if they are short: a single pause of the machine decides a round of 10 ms. */
const MEASURED = { rounds: 9, withinMs: 1_000 };

/**
 * Waiters that want one lock again and again, until all of them together have held it a number of times. The holder
 * reads a counter, holds the lock, and writes the counter plus one: a lost update means two holders.
 */
export function contended({ title, processes, waiters, holdMs, fair = false }) {
  return {
    title,
    kind: 'contended',
    groups: fair ? ['fair'] : processes > 1 ? ['contended', 'lost-update-control'] : ['contended'],
    also: fair ? ['raw-queue', 'raw-confirmed-queue'] : [],
    baseline: 'raw-queue',
    counts: true,
    processes,
    terms: { fair },

    async coordinate({ servers: [{ control }], workers, scratch, quick, counting }) {
      const turns = (processes > 1 ? TURNS * 2 : TURNS) / (quick && holdMs > 0 ? 2 : 1);
      await workers[0].run('prepare', { keys: [KEY] });
      const everyWorker = (task, terms) => workers.map((worker, index) => worker.run(task, terms?.(index)));
      const round = async () => {
        const file = createSharedResource(scratch);
        await control.config('RESETSTAT');
        const redisBefore = await redisCpuUs(control);
        const contending = everyWorker('contend', (index) => ({
          path: file.path,
          turns,
          waiters,
          holdMs,
          firstId: index * waiters,
        }));
        await Promise.race(contending);
        const [redisAfter, calls] = await Promise.all([redisCpuUs(control), commandCalls(control)]);
        await Promise.all(everyWorker('stop'));
        const parts = await Promise.all(contending);
        const { count } = file.resource.read();
        file.resource.close();
        return { parts, turns, count, calls, redisUs: redisAfter - redisBefore };
      };
      /** Calls that wait when it is over also have their turn. */
      const finished = () => Promise.all(everyWorker('finish'));

      const begin = nowMs();
      const { leastMs, rounds: leastRounds, mostMs } = quick || counting ? SHORT_WARM_UP : WARM_UP;
      for (let rounds = 0, ms = 0; ms < leastMs || (rounds < leastRounds && ms < mostMs); rounds++) {
        await round();
        await finished();
        ms = nowMs() - begin;
      }
      if (counting) {
        const { calls } = await round();
        const all = await finished();
        const count = (what) => sum(all.map((part) => part[what]));
        return { commands: count('commands') / count('turns'), calls: calls / turns };
      }
      const measured = [];
      for (const since = nowMs(); measured.length === 0 || nowMs() - since < MEASURED.withinMs;) {
        if (measured.length > 0) await finished();
        measured.push(figures(await round()));
        if (measured.length === MEASURED.rounds) break;
      }
      return together(measured);
    },

    tasks: {
      contend,
      stop: (client) => client.stop?.(),
      finish: (client) => client.finished,
    },
  };
}

export async function contend(client, { path, turns, waiters, holdMs, firstId }) {
  const { contestant, commandsSent } = client;
  const resource = new SharedResource(path);
  const waits = [];
  const waitingSince = Array(waiters).fill(undefined);
  const turnsOf = Array(waiters).fill(0);
  let turnsHere = 0;
  let acquired = 0;
  let switches = 0;
  let endedAt;
  let isOver = false;
  const startedAt = nowMs();
  const cpuBefore = process.cpuUsage();
  const commandsBefore = commandsSent();

  const over = new Promise((resolve, reject) => {
    client.stop = () => {
      if (isOver) return;
      isOver = true;
      const now = nowMs();
      resolve({
        startedAt,
        endedAt,
        waits,
        /** How long calls wait that never get the lock. */
        unended: waitingSince.filter((since) => since !== undefined).map((since) => now - since),
        turnsOf,
        switches,
        clientUs: cpuUs(cpuBefore),
      });
    };
    const waiting = Promise.all(Array.from({ length: waiters }, (_, index) => wait(index)));
    waiting.catch(reject);
    client.finished = waiting.then(() => ({ commands: commandsSent() - commandsBefore, turns: acquired }));
    client.finished.catch(() => {}); // the other process sent it
  });

  async function wait(index) {
    while (!isOver) {
      waitingSince[index] = nowMs();
      const lock = await contestant.acquire(KEY);
      acquired++;
      if (!isOver) await hold(index);
      await contestant.release(lock);
    }
  }

  async function hold(index) {
    waits.push(nowMs() - waitingSince[index]);
    waitingSince[index] = undefined;
    const { count, last } = resource.read();
    if (count >= turns) return;
    await (holdMs > 0 ? sleep(holdMs) : undefined);
    resource.write(count + 1, firstId + index);
    turnsOf[index]++;
    if (last !== firstId + index) switches++;
    // Without a lock, the counter may never get there.
    if (count + 1 < turns && ++turnsHere < turns) return;
    endedAt = nowMs();
    client.stop();
  }

  return over;
}

export function figures({ parts, turns, count, calls, redisUs }) {
  const startedAt = Math.min(...parts.map((part) => part.startedAt));
  const ms = Math.max(...parts.map((part) => part.endedAt ?? 0)) - startedAt;
  const waits = sorted(parts.flatMap((part) => part.waits));
  const unended = parts.flatMap((part) => part.unended);
  const turnsOf = parts.flatMap((part) => part.turnsOf);
  const switches = sum(parts.map((part) => part.switches));
  const longestMs = Math.max(waits.at(-1), ...unended);
  return {
    turns,
    ms,
    rate: (turns / ms) * 1_000,
    p50Ms: quantile(waits, 0.5),
    p99Ms: quantile(waits, 0.99),
    longestWaitMs: longestMs,
    maxToMedian: longestMs / median(waits),
    switchesPerSecond: (switches / ms) * 1_000,
    switchShare: switches / turns,
    leastTurns: Math.min(...turnsOf),
    mostTurns: Math.max(...turnsOf),
    calls: calls / turns,
    clientCpuUs: sum(parts.map((part) => part.clientUs)) / turns,
    redisCpuUs: redisUs / turns,
    violations: sum(turnsOf) - count,
  };
}

/** The medians of the rounds; all lost updates; and the turns of each waiter in the least even round. */
function together(rounds) {
  const names = Object.keys(rounds[0]);
  const medians = Object.fromEntries(names.map((name) => [name, median(rounds.map((round) => round[name]))]));
  const unevenness = ({ leastTurns, mostTurns }) => mostTurns - leastTurns;
  const { leastTurns, mostTurns } = rounds.reduce((a, b) => (unevenness(b) > unevenness(a) ? b : a));
  return { ...medians, leastTurns, mostTurns, violations: sum(rounds.map(({ violations }) => violations)) };
}
