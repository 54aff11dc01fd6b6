/**
 * The contestants, and their groups of scenarios. The order matters: contestants that are compared run one right after
 * the other.
 *
 * The module of a contestant, which is loaded only in the processes of its own cells, has
 *
 *   open({ ports, ttlMs, waitMs, fair, processes }) → { acquire(key) → handle, release(handle), close() }
 *
 * and its result may have `turn(key, work) → the answer of the library to the release` (`work` gets `{ held(), token }`: the
 * best check of the library whether the work still holds the lock, and the fencing token; `work` never rejects),
 * `prepare(keys)` (called once per cell, before anybody acquires) and
 * `hold(key, ttlMs) → { release() }` (a lock that is renewed until released), `acquireAll(keys) → handle` (all of these, or none).
 * Under faults `open` gets `settings` as well: `faults/settings.mjs`.
 */
export const CONTESTANTS = {
  raw: { title: 'raw client', takesPart: ['uncontended', 'held'] },
  'raw-scripts': { title: 'raw client, our scripts', takesPart: ['uncontended', 'redlock'] },
  library: {
    title: 'nest-redis-lock',
    takesPart: [
      'uncontended',
      'contended',
      'wake-up',
      'fair',
      'crowd',
      'held',
      'due-together',
      'redlock',
      'second-round-trips',
      'keys-left-redlock',
      'growth',
      'sets',
    ],
  },
  'library-node-redis': { title: 'nest-redis-lock, with node-redis', takesPart: ['clients'] },
  'raw-node-redis': { title: 'raw client of node-redis', takesPart: ['clients'] },
  'raw-queue': { title: 'raw queue', takesPart: ['contended', 'wake-up'] },
  'raw-confirmed-queue': { title: 'raw queue, confirmed', takesPart: ['wake-up'] },
  'raw-blpop-token': { title: 'raw BLPOP token', takesPart: ['wake-up'] },
  'raw-quorum': { title: 'raw quorum', takesPart: ['redlock'] },
  'redlock-5': {
    title: 'redlock 5 beta',
    takesPart: ['uncontended', 'contended', 'wake-up', 'held', 'redlock', 'sets'],
  },
  'redlock-4': { title: 'redlock 4', takesPart: ['uncontended', 'contended', 'wake-up', 'redlock'] },
  'sesamecare-redlock': {
    title: '@sesamecare-oss/redlock',
    takesPart: ['uncontended', 'contended', 'wake-up', 'held', 'redlock'],
  },
  'redis-semaphore': {
    title: 'redis-semaphore',
    takesPart: ['uncontended', 'contended', 'wake-up', 'held', 'redlock'],
  },
  'redlock-universal': {
    title: 'redlock-universal',
    takesPart: ['uncontended', 'contended', 'wake-up', 'held', 'redlock'],
  },
  verrou: { title: '@verrou/core', takesPart: ['uncontended', 'contended', 'wake-up'] },
  murlock: { title: 'murlock', takesPart: ['uncontended', 'contended', 'wake-up'] },
  'redis-kit': { title: '@redis-kit/lock', takesPart: ['uncontended', 'contended', 'wake-up', 'held', 'redlock'] },
  'set-nx': { title: 'SET NX with one value (control)', takesPart: [] },
  'no-lock': { title: 'no lock (control)', takesPart: ['lost-update-control'] },
};

export function loadContestant(id) {
  return import(`./${id}.mjs`);
}
