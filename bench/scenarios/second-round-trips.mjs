import { library } from '../contestants/library.mjs';
import { sum } from '../cell/statistics.mjs';
import { freshKeys, turns } from './turns-in-slices.mjs';

const NODES = 5;
const QUORUM = 3;
const TURNS = 10_000; // of each process
const QUICK_TURNS = 2_500;
const IN_FLIGHT = 50;

/**
 * How many acquisitions of a Redlock take a second round trip, when four processes propose their tokens at once. It was
 * begun if a counter had to be raised, and needed if the lock was granted before a majority had voted for its token.
 */
export const secondRoundTrips = {
  title: 'Second round trips: Redlock of 5, 4 processes × 50 in flight, fresh keys',
  kind: 'second-round-trips',
  groups: ['second-round-trips'],
  nodes: NODES,
  processes: 4,
  terms: { ttlMs: 5_000 }, // new nodes do not vote for so long

  async coordinate({ workers, quick }) {
    const count = quick ? QUICK_TURNS : TURNS;
    const everyWorker = (task) => Promise.all(workers.map((worker) => worker.run(task, { count })));
    await everyWorker('take'); // warm-up: most counters begin here
    const parts = await everyWorker('take');
    const granted = sum(parts.map((part) => part.granted));
    return {
      turns: granted,
      begunShare: sum(parts.map((part) => part.begun)) / granted,
      neededShare: sum(parts.map((part) => part.needed)) / granted,
      violations: count * workers.length - granted,
    };
  },

  tasks: {
    async take(client, { count }) {
      client.watch ??= await watchAttempts();
      await turns(client.contestant, freshKeys('fresh'), { count, inFlight: IN_FLIGHT });
      return client.watch();
    },
  },
};

/**
 * Watches the attempts of this process, each with its own key, at the methods of the library that ask and decide.
 * @returns a function that takes the observations since the last call
 */
async function watchAttempts() {
  const { RedisNode } = await library('stores/redis/node/redis-node.js');
  const { RedlockBackend } = await library('stores/redis/redlock/redlock.backend.js');
  const attempts = new Map();
  let seen = { granted: 0, begun: 0, needed: 0 };

  wrap(RedisNode, 'vote', (vote, request, admission, value, done, wanted) => {
    const attempt = attempts.get(request.key);
    const noted = (answer, sentAt) => {
      if (answer.status === 'granted') attempt?.tokens.push(answer.fencingToken);
      done(answer, sentAt);
    };
    return vote(request, admission, value, noted, wanted);
  });
  wrap(RedisNode, 'raiseFence', (raise, grant, token) => {
    const attempt = attempts.get(grant.key);
    if (attempt) attempt.isBegun = true;
    return raise(grant, token);
  });
  wrap(RedlockBackend, 'acquire', (acquire, request, done) => {
    const attempt = { tokens: [], isBegun: false };
    attempts.set(request.key, attempt);
    acquire(request, (outcome) => {
      attempts.delete(request.key);
      if (outcome.status === 'acquired') {
        const { fencingToken } = outcome.grant;
        const votes = attempt.tokens.filter((token) => token === fencingToken).length;
        seen.granted++;
        if (attempt.isBegun) seen.begun++;
        if (votes < QUORUM) seen.needed++;
      }
      done(outcome);
    });
  });

  return () => {
    const taken = seen;
    seen = { granted: 0, begun: 0, needed: 0 };
    return taken;
  };
}

/** Replaces a method by a function, which is called with the method, bound to its object, and the arguments. */
function wrap({ prototype }, name, replacement) {
  const method = prototype[name];
  prototype[name] = function wrapped(...args) {
    return replacement(method.bind(this), ...args);
  };
}
