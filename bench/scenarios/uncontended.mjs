import { connect } from '../contestants/clients.mjs';
import { open as openRaw } from '../contestants/raw.mjs';
import { open as openRawScripts } from '../contestants/raw-scripts.mjs';
import { commandCalls } from '../cell/redis-servers.mjs';
import { alternate, keys, turns } from './turns-in-slices.mjs';

const FULL = { sliceMs: 100, rounds: 12, warmUpMs: 1_500, keyCount: 1_000 };
const QUICK = { sliceMs: 100, rounds: 4, warmUpMs: 1_500, keyCount: 1_000 };
const COUNTED_TURNS = 2_000;

/** Acquire and release of locks that nobody else wants, in turn with the raw client, and the library with its bare scripts, too. */
export function uncontended({ title, inFlight }) {
  return {
    title,
    kind: 'uncontended',
    groups: ['uncontended'],
    baseline: 'raw',
    counts: true,

    coordinate({ contestant, workers: [worker], quick, counting }) {
      if (counting) return worker.run('count', { inFlight });
      const slices = { inFlight, ...(quick ? QUICK : FULL) };
      return worker.run('alternate', { slices, withScripts: contestant === 'library' });
    },

    tasks: {
      async alternate({ contestant, terms }, { slices, withScripts }) {
        const raw = await openRaw(terms);
        const scripts = withScripts ? await openRawScripts(terms) : undefined;
        const control = await connect(terms.ports[0]);
        return alternate(contestant, { raw, scripts }, slices, [control]);
      },

      async count({ contestant, commandsSent, terms }, { inFlight: loops }) {
        const control = await connect(terms.ports[0]);
        const nextKey = keys('bench', COUNTED_TURNS);
        const useEveryLock = () => turns(contestant, nextKey, { count: COUNTED_TURNS, inFlight: loops });
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
