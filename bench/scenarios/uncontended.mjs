import { connect } from '../contestants/clients.mjs';
import { open as openRaw } from '../contestants/raw.mjs';
import { commandCalls } from '../cell/redis-servers.mjs';
import { alternate, keys } from './turns-in-slices.mjs';

const FULL = { sliceMs: 100, pairs: 12, warmUpMs: 1_500, keyCount: 1_000 };
const QUICK = { sliceMs: 100, pairs: 4, warmUpMs: 1_500, keyCount: 1_000 };
const COUNTED_TURNS = 2_000;

/** Acquire and release of locks that nobody else wants, in turn with the raw client. */
export function uncontended({ title, inFlight }) {
  return {
    title,
    kind: 'uncontended',
    groups: ['uncontended'],
    baseline: 'raw',
    counts: true,

    coordinate({ workers: [worker], quick, counting }) {
      if (counting) return worker.run('count', { inFlight });
      return worker.run('alternate', { inFlight, ...(quick ? QUICK : FULL) });
    },

    tasks: {
      async alternate({ contestant, terms }, slices) {
        const raw = await openRaw(terms);
        const control = await connect(terms.ports[0]);
        return alternate(contestant, raw, slices, [control]);
      },

      async count({ contestant, commandsSent, terms }, { inFlight: loops }) {
        const control = await connect(terms.ports[0]);
        const nextKey = keys('bench', COUNTED_TURNS);
        const useEveryLock = async () => {
          let turns = 0;
          const loop = async () => {
            while (turns++ < COUNTED_TURNS) await contestant.release(await contestant.acquire(nextKey()));
          };
          await Promise.all(Array.from({ length: loops }, loop));
        };
        await useEveryLock(); // warm up: scripts are loaded by that
        await control.config('RESETSTAT');
        const before = commandsSent();
        await useEveryLock();
        const commands = commandsSent() - before;
        return { commands: commands / COUNTED_TURNS, calls: (await commandCalls(control)) / COUNTED_TURNS };
      },
    },
  };
}
