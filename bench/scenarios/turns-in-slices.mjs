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

/** Turns of acquire and release on so many keys of a series, some in flight at once. */
export async function turns(contestant, nextKey, { count, inFlight }) {
  let begun = 0;
  const loop = async () => {
    while (begun++ < count) await contestant.release(await contestant.acquire(nextKey()));
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
}

/** Keys that come round: enough of them that none is met while it is held, few enough that all are in use. */
export function keys(prefix, count) {
  let sequence = 0;
  return () => `${prefix}:${sequence++ % count}`;
}

let freshCount = 0;

/** Keys of which each is used once, whichever process asks for them, and how often. */
export function freshKeys(prefix) {
  return () => `${prefix}:${process.pid}:${freshCount++}`;
}

/** What was seen of one of the sides that take turns. */
class Side {
  #slices = [];

  constructor(contestant, name, keyCount) {
    this.contestant = contestant;
    this.nextKey = keyCount === undefined ? freshKeys(name) : keys(name, keyCount);
  }

  async warmUp({ inFlight, warmUpMs }) {
    await slice(this, { inFlight, sliceMs: warmUpMs });
  }

  async measure(terms, controls) {
    const redisBefore = await totalRedisCpuUs(controls);
    const cpuBefore = process.cpuUsage();
    const { latencies, ms } = await slice(this, terms);
    const clientUs = cpuUs(cpuBefore);
    this.#slices.push({ latencies, ms, clientUs, redisUs: (await totalRedisCpuUs(controls)) - redisBefore });
  }

  rates() {
    return this.#slices.map(({ latencies, ms }) => (latencies.length / ms) * 1_000);
  }

  /** The median latency of each slice. */
  p50s() {
    return this.#slices.map(({ latencies }) => quantile(sorted(latencies), 0.5));
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
 * Alternates a contestant and the baselines in short slices of one process, so that the drift of a shared machine meets all
 * alike. The ratios are medians over neighbouring slices: the contestant stands between its baselines.
 * @param baselines.raw the raw client, or the raw quorum
 * @param baselines.scripts the raw client with the scripts of the library, if the contestant is compared with that, too
 * @param terms.keyCount how many keys come round; undefined: each key is used once
 */
export async function alternate(contestant, { raw, scripts }, terms, controls) {
  const { inFlight, sliceMs, rounds, keyCount } = terms;
  const ours = new Side(contestant, 'bench', keyCount);
  const rawSide = new Side(raw, 'raw', keyCount);
  const scriptsSide = scripts && new Side(scripts, 'scripts', keyCount);
  const sides = [rawSide, ours, scriptsSide].filter(Boolean);
  for (const side of sides) await side.warmUp(terms);
  for (let round = 0; round < rounds; round++) {
    for (const side of sides) await side.measure({ inFlight, sliceMs }, controls);
    sides.reverse();
  }
  const ratio = (mine, other) => median(mine.map((value, index) => value / other[index]));
  return {
    ...ours.figures(),
    raw: rawSide.figures(),
    rateToRaw: ratio(ours.rates(), rawSide.rates()),
    p50ToRaw: ratio(ours.p50s(), rawSide.p50s()),
    ...(scriptsSide && {
      scripts: scriptsSide.figures(),
      rateToScripts: ratio(ours.rates(), scriptsSide.rates()),
    }),
  };
}

async function totalRedisCpuUs(controls) {
  return sum(await Promise.all(controls.map(redisCpuUs)));
}
