import { openMany } from '../contestants/library.mjs';
import { scriptCalls } from '../cell/redis-servers.mjs';
import { sum } from '../cell/statistics.mjs';

const KEY = 'hot';
const PROCESSES = 2;
const SERVICES = { few: 2, some: 32, many: 128 };
const QUICK_SERVICES = { few: 2, some: 16 };

/** The cost of a turn when more and more lock services want one lock. */
export const hotKey = {
  title: 'One hot key among 2, 32 (quick: 16) and 128 lock services in two processes, 0 ms hold',
  kind: 'hot-key',
  groups: ['growth'],
  processes: PROCESSES,
  once: true,

  async coordinate({ servers: [{ control }], workers, quick }) {
    const everyWorker = (task, terms) => Promise.all(workers.map((worker) => worker.run(task, terms)));
    const figures = {};
    for (const [name, services] of Object.entries(quick ? QUICK_SERVICES : SERVICES)) {
      await everyWorker('openServices', { count: services / PROCESSES });
      await everyWorker('takeTurns', { ms: 1_000 }); // warm up
      await control.config('RESETSTAT');
      const ms = quick ? 1_500 : 4_000;
      const turns = sum(await everyWorker('takeTurns', { ms }));
      figures[name] = { services, turns, rate: (turns / ms) * 1_000, commands: (await scriptCalls(control)) / turns };
    }
    return { ...figures, mostCommands: Math.max(...Object.values(figures).map(({ commands }) => commands)) };
  },

  tasks: {
    async openServices(client, { count }) {
      client.services ??= [];
      client.services.push(...(await openMany(client.terms, count - client.services.length)));
    },

    /** Each service wants the lock again and again, and has its last turn. */
    async takeTurns({ services }, { ms }) {
      const end = performance.now() + ms;
      let turns = 0;
      const take = async (service) => {
        while (performance.now() < end) {
          await service.release(await service.acquire(KEY));
          turns++;
        }
      };
      await Promise.all(services.map(take));
      return turns;
    },
  },
};
