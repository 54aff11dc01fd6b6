import { connect } from '../contestants/clients.mjs';
import { open as openRaw } from '../contestants/raw.mjs';
import { open as openRawScripts } from '../contestants/raw-scripts.mjs';
import { commandCalls } from '../cell/redis-servers.mjs';
import { alternate, keys, slicesOf, turns } from './turns-in-slices.mjs';

const FULL = { sliceMs: 100, rounds: 12, warmUpMs: 1_500 };
const QUICK = { sliceMs: 100, rounds: 4, warmUpMs: 1_500 };
/** The first second of a process, as after a deployment, or in a function. */
const COLD = { sliceMs: 50, rounds: 20, warmUpMs: 300 };
const KEY_COUNT = 1_000;
const COUNTED_TURNS = 2_000;

/**
 * Acquire and release of locks without contention, in turn with the raw client; for the library, also with its bare
 * scripts.
 * @param fair only of the library
 * @param awaitRelease false: only of the library, whose calls do not wait for their releases
 */
export function uncontended({ title, inFlight, fair = false, awaitRelease = true }) {
  const isOfLibrary = fair || !awaitRelease;
  return {
    title,
    kind: 'uncontended',
    groups: isOfLibrary ? [] : ['uncontended', 'clients'],
    also: isOfLibrary ? ['library'] : [],
    baseline: 'raw',
    counts: true,
    terms: { fair, awaitRelease },

    coordinate({ contestant, workers: [worker], quick, counting }) {
      if (counting) return worker.run('count', { inFlight });
      const slices = { inFlight, ...(quick ? QUICK : FULL) };
      return worker.run('alternate', { slices, withScripts: contestant === 'library' });
    },

    tasks: {
      async alternate({ contestant, terms }, { slices, withScripts }) {
        const sides = {
          ours: slicesOf(contestant, 'bench', KEY_COUNT),
          raw: slicesOf(await openRaw(terms), 'raw', KEY_COUNT),
          ...(withScripts && { scripts: slicesOf(await openRawScripts(terms), 'scripts', KEY_COUNT) }),
        };
        const control = await connect(terms.ports[0]);
        return alternate(sides, slices, [control]);
      },

      async count({ contestant, commandsSent, terms }, { inFlight: loops }) {
        const control = await connect(terms.ports[0]);
        const nextKey = keys('bench', COUNTED_TURNS);
        const useEveryLock = () => turns(contestant, nextKey, { count: COUNTED_TURNS, inFlight: loops });
        await useEveryLock(); // warm-up: it loads the scripts
        await control.config('RESETSTAT');
        const before = commandsSent();
        await useEveryLock();
        const commands = commandsSent() - before;
        return { commands: commands / COUNTED_TURNS, calls: (await commandCalls(control)) / COUNTED_TURNS };
      },
    },
  };
}

/**
 * The library and both baselines, each in its own process: on Node.js 20 the first `AsyncLocalStorage` slows down all
 * promises of its process, even the promises of a raw client.
 * @param isCold measures only their first second
 * @param node the version of Node.js that the processes run on, if it is not the version of the bench
 */
export function uncontendedApart({ title, inFlight, isCold = false, node }) {
  return {
    title,
    kind: 'uncontended-apart',
    also: ['library'],
    beside: ['raw', 'raw-scripts'],
    node,

    async coordinate({ servers: [{ control }], workers, quick }) {
      const [ours, raw, scripts] = workers.map((worker) => (terms) => worker.run('takeTurns', terms));
      const length = quick ? QUICK : FULL;
      return alternate({ ours, raw, scripts }, { inFlight, ...(isCold ? COLD : length) }, [control]);
    },

    tasks: {
      takeTurns(client, terms) {
        client.takeTurns ??= slicesOf(client.contestant, `bench:${process.pid}`, KEY_COUNT);
        return client.takeTurns(terms);
      },
    },
  };
}
