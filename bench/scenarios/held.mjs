import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { commandCalls, redisCpuUs } from '../cell/redis-servers.mjs';
import { cpuUs } from '../cell/statistics.mjs';

const TTL_MS = 3_000;
const RESOLUTION_MS = 5;

/** Many locks at once, each renewed by the means of the contestant, with its own default interval. */
export function held({ title, locks, groups, also }) {
  return {
    title,
    kind: 'held',
    groups,
    also,
    baseline: 'raw',
    counts: true,

    async coordinate({ servers: [{ control }], workers: [worker], quick, counting }) {
      const seconds = quick || counting ? 3 : 10;
      await worker.run('acquire', { locks });
      const before = await holders(control);
      await control.config('RESETSTAT');
      const redisBefore = await redisCpuUs(control);
      const { commands, ...figures } = await worker.run('hold', { ms: seconds * 1_000 });
      const redisUs = (await redisCpuUs(control)) - redisBefore;
      const calls = (await commandCalls(control)) / seconds;
      if (counting) return { commands: commands / seconds, calls };
      const loopDelay = await worker.run('watchLoop', { ms: (seconds * 1_000) / 2 });
      const after = await holders(control);
      const kept = [...before].filter(([key, holder]) => after.get(key) === holder).length;
      return {
        ...figures,
        ...loopDelay,
        calls,
        clientCpuPercent: figures.clientUs / seconds / 10_000,
        redisCpuPercent: redisUs / seconds / 10_000,
        locks,
        violations: locks - kept,
      };
    },

    tasks: {
      async acquire(client, { locks: count }) {
        const { contestant } = client;
        client.held = await Promise.all(
          Array.from({ length: count }, (_, index) => contestant.hold(`held:${index}`, TTL_MS)),
        );
        await sleep(TTL_MS / 3); // into the steady state
      },

      async hold({ commandsSent }, { ms }) {
        const commandsBefore = commandsSent();
        const cpuBefore = process.cpuUsage();
        await sleep(ms);
        return { clientUs: cpuUs(cpuBefore), commands: commandsSent() - commandsBefore };
      },

      /** In a run of its own: such frequent checks cost as much CPU as the measured work. */
      async watchLoop(_client, { ms }) {
        const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
        delay.enable();
        await sleep(ms);
        delay.disable();
        // The histogram contains the time between two checks.
        return { loopDelayP99Ms: Math.max(0, delay.percentile(99) / 1e6 - RESOLUTION_MS) };
      },
    },
  };
}

/** The holder of each lock, as Redis has it. */
async function holders(control) {
  const keys = await control.keys('*held:*');
  const values = keys.length > 0 ? await control.mget(keys) : [];
  // The + after the token of this library says that there may be waiters. It is not part of the holder.
  return new Map(keys.map((key, index) => [key, values[index]?.replace(/\+$/, '')]));
}
