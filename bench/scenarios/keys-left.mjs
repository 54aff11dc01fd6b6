import { freshKeys, turns } from './turns-in-slices.mjs';

const LOCKS = 200_000;
const QUICK_LOCKS = 20_000;
const IN_FLIGHT = 200;

/** The keys that remain in Redis after locks were each held once, and released. */
export function keysLeft({ title, groups, nodes }) {
  return {
    title,
    kind: 'keys-left',
    groups,
    nodes,
    once: true,
    terms: { ttlMs: 5_000 }, // new nodes do not vote for so long

    async coordinate({ servers, workers: [worker], quick }) {
      const count = quick ? QUICK_LOCKS : LOCKS;
      await worker.run('take', { count });
      const left = await Promise.all(servers.map(({ control }) => control.dbsize()));
      return { turns: count, keysLeft: Math.max(...left) };
    },

    tasks: {
      async take({ contestant }, { count }) {
        await turns(contestant, freshKeys('once'), { count, inFlight: IN_FLIGHT });
        await contestant.close(); // releases on the nodes beyond the majority may be in flight
      },
    },
  };
}
