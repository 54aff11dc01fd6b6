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

/** Keys that come round: enough of them that none is met while it is held, few enough that all are in use. */
export function keys(prefix, count) {
  let sequence = 0;
  return () => `${prefix}:${sequence++ % count}`;
}

/** What was seen of one of two sides that take turns. */
class Side {
  #slices = [];

  constructor(contestant, name, keyCount) {
    this.contestant = contestant;
    this.nextKey = keys(name, keyCount);
  }

  /** For a while, and until every lock was used once: its first use costs more than the next ones. */
  async warmUp({ inFlight, warmUpMs, keyCount }) {
    for (let turns = 0; turns < keyCount;) {
      turns += (await slice(this, { inFlight, sliceMs: warmUpMs })).latencies.length;
    }
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
 * Alternates a contestant and the raw one in short slices of one process, so that the drift of a shared machine meets
 * both alike. The ratios are medians over pairs of neighbouring slices.
 */
export async function alternate(contestant, raw, terms, controls) {
  const { inFlight, sliceMs, pairs, keyCount } = terms;
  const ours = new Side(contestant, 'bench', keyCount);
  const theirs = new Side(raw, 'raw', keyCount);
  for (const side of [ours, theirs]) await side.warmUp(terms);
  for (let pair = 0; pair < pairs; pair++) {
    for (const side of pair % 2 === 0 ? [ours, theirs] : [theirs, ours]) {
      await side.measure({ inFlight, sliceMs }, controls);
    }
  }
  const ratio = (mine, other) => median(mine.map((value, index) => value / other[index]));
  return {
    ...ours.figures(),
    raw: theirs.figures(),
    rateToRaw: ratio(ours.rates(), theirs.rates()),
    p50ToRaw: ratio(ours.p50s(), theirs.p50s()),
  };
}

async function totalRedisCpuUs(controls) {
  return sum(await Promise.all(controls.map(redisCpuUs)));
}
