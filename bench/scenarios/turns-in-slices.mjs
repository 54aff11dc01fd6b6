import { performance } from 'node:perf_hooks';
import { redisCpuUs } from '../cell/redis-servers.mjs';
import { cpuUs, median, quantile, sorted, sum } from '../cell/statistics.mjs';

/** Turns of acquire and release for a while, some in flight at once. */
export async function slice({ contestant, nextKey }, { inFlight, sliceMs }) {
  const latencies = [];
  const start = performance.now();
  const loop = async () => {
    for (let begin = performance.now(); begin - start < sliceMs;) {
      await contestant.release(await contestant.acquire(nextKey()));
      const end = performance.now();
      latencies.push(end - begin);
      begin = end;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
  return { latencies, ms: performance.now() - start };
}

/** Turns of acquire and release on a series of keys, some in flight at once. */
export async function turns(contestant, nextKey, { count, inFlight }) {
  let begun = 0;
  const loop = async () => {
    while (begun++ < count) await contestant.release(await contestant.acquire(nextKey()));
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
}

/** Keys that are reused: enough of them that none is still held when it is used again, few enough that all are used. */
export function keys(prefix, count) {
  let sequence = 0;
  return () => `${prefix}:${sequence++ % count}`;
}

let freshCount = 0;

/** Keys that are used once each, in any process, and how many of them. */
export function freshKeys(prefix) {
  return () => `${prefix}:${process.pid}:${freshCount++}`;
}

/** Takes turns on a contestant in this process, one slice at a time. */
export function slicesOf(contestant, name, keyCount) {
  const nextKey = keyCount === undefined ? freshKeys(name) : keys(name, keyCount);
  return async (terms) => {
    const before = process.cpuUsage();
    const { latencies, ms } = await slice({ contestant, nextKey }, terms);
    return { latencies, ms, clientUs: cpuUs(before) };
  };
}

/** The observations of one of the sides that take turns. */
class Side {
  #takeTurns;
  #slices = [];

  constructor(takeTurns) {
    this.#takeTurns = takeTurns;
  }

  async warmUp({ inFlight, warmUpMs }) {
    await this.#takeTurns({ inFlight, sliceMs: warmUpMs });
  }

  async measure(terms, controls) {
    const redisBefore = await totalRedisCpuUs(controls);
    const turnsTaken = await this.#takeTurns(terms);
    this.#slices.push({ ...turnsTaken, redisUs: (await totalRedisCpuUs(controls)) - redisBefore });
  }

  rates() {
    return this.#slices.map(({ latencies, ms }) => (latencies.length / ms) * 1_000);
  }

  /** The median latency of each slice. */
  p50s() {
    return this.#slices.map(({ latencies }) => quantile(sorted(latencies), 0.5));
  }

  /** The CPU time of the client for one turn, in each slice. */
  clientCpu() {
    return this.#slices.map(({ latencies, clientUs }) => clientUs / latencies.length);
  }

  figures() {
    const latencies = sorted(this.#slices.flatMap((one) => one.latencies));
    const perTurn = (name) => sum(this.#slices.map((one) => one[name])) / latencies.length;
    return {
      turns: latencies.length,
      rate: median(this.rates()),
      p50Ms: quantile(latencies, 0.5),
      p99Ms: quantile(latencies, 0.99),
      clientCpuUs: perTurn('clientUs'),
      redisCpuUs: perTurn('redisUs'),
    };
  }
}

/**
 * Alternates a contestant and the baselines in short slices, so that the drift of a shared machine affects all of them
 * equally. The ratios are medians over neighbouring slices: the contestant runs between its baselines. Each side is a
 * function that takes turns for one slice.
 * @param sides.raw the raw client, or the raw quorum
 * @param sides.scripts the raw client with the scripts of the library, if the contestant is also compared with it
 */
export async function alternate({ ours: takeOurs, raw: takeRaw, scripts: takeScripts }, terms, controls) {
  const { inFlight, sliceMs, rounds } = terms;
  const ours = new Side(takeOurs);
  const raw = new Side(takeRaw);
  const scripts = takeScripts && new Side(takeScripts);
  const sides = [raw, ours, scripts].filter(Boolean);
  for (const side of sides) await side.warmUp(terms);
  for (let round = 0; round < rounds; round++) {
    for (const side of sides) await side.measure({ inFlight, sliceMs }, controls);
    sides.reverse();
  }
  const ratio = (mine, other) => median(mine.map((value, index) => value / other[index]));
  return {
    ...ours.figures(),
    raw: raw.figures(),
    rateToRaw: ratio(ours.rates(), raw.rates()),
    p50ToRaw: ratio(ours.p50s(), raw.p50s()),
    clientCpuToRaw: ratio(ours.clientCpu(), raw.clientCpu()),
    ...(scripts && {
      scripts: scripts.figures(),
      rateToScripts: ratio(ours.rates(), scripts.rates()),
    }),
  };
}

async function totalRedisCpuUs(controls) {
  return sum(await Promise.all(controls.map(redisCpuUs)));
}
