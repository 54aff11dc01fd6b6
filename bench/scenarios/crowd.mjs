import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs, quantile, sorted, sum } from '../cell/statistics.mjs';

const KEY = 'crowd';
const WAITERS = 1_000;
const HOLD_MS = 1;

/**
 * Very many waiters, one turn each: all of them are served, Redis sees one waiter per process, and the memory is freed.
 */
export const crowd = {
  title: '1 000 waiters in each of 4 processes, 1 ms hold',
  kind: 'crowd',
  groups: ['crowd'],
  processes: 4,

  async coordinate({ servers: [{ control }], workers }) {
    await Promise.all(workers.map((worker) => worker.run('crowd', { waiters: 20 }))); // warm up
    const memoryBefore = await Promise.all(workers.map((worker) => worker.run('memory')));
    const redisBefore = await redisMemory(control);
    const startedAt = nowMs();
    let isOver = false;
    const watching = watchQueue(control, () => isOver);
    const parts = await Promise.all(workers.map((worker) => worker.run('crowd', { waiters: WAITERS })));
    const ms = nowMs() - startedAt;
    isOver = true;
    const { mostInQueue, looks } = await watching;
    const memoryAfter = await Promise.all(workers.map((worker) => worker.run('memory')));
    const waits = sorted(parts.flatMap((part) => part.waits));
    return {
      turns: waits.length,
      ms,
      rate: (waits.length / ms) * 1_000,
      p50Ms: quantile(waits, 0.5),
      p99Ms: quantile(waits, 0.99),
      unserved: WAITERS * workers.length - waits.length,
      errors: parts.flatMap((part) => part.errors).slice(0, 3),
      mostInQueue,
      looks,
      keptObjects: sum(memoryAfter.map(({ size }) => size)),
      heapKbPerProcess: Math.max(...memoryAfter.map(({ heap }, index) => (heap - memoryBefore[index].heap) / 1024)),
      redisKb: ((await redisMemory(control)) - redisBefore) / 1024,
      keysLeft: await control.keys('*'),
    };
  },

  tasks: {
    async crowd({ contestant }, { waiters }) {
      const waits = [];
      const errors = [];
      const turn = async () => {
        const begin = nowMs();
        try {
          const lock = await contestant.acquire(KEY);
          waits.push(nowMs() - begin);
          await sleep(HOLD_MS);
          await contestant.release(lock);
        } catch (error) {
          errors.push(`${error.name}: ${error.message}`);
        }
      };
      await Promise.all(Array.from({ length: waiters }, turn));
      return { waits, errors };
    },

    async memory({ contestant }) {
      for (let round = 0; round < 3; round++) {
        await sleep(50); // what is in flight ends, and its memory can be freed
        globalThis.gc();
      }
      return { heap: process.memoryUsage().heapUsed, size: contestant.size() };
    },
  },
};

async function watchQueue(control, isOver) {
  let mostInQueue = 0;
  let looks = 0;
  for (; !isOver(); looks++) {
    mostInQueue = Math.max(mostInQueue, await control.zcount(`lock:{${KEY}}:queue`, 0, '+inf'));
    await sleep(2);
  }
  return { mostInQueue, looks };
}

async function redisMemory(control) {
  return Number(/^used_memory:(\d+)/m.exec(await control.info('memory'))[1]);
}
