/**
 * What is measured. A scenario is an object with `title`, `groups` (which contestants take part), `baseline` (whom the
 * others are compared with), `coordinate(cell)` (runs in the process of the cell, returns its figures) and `tasks` (run
 * in its client processes). One with `once` is not repeated: chance has no part in its figures.
 */
import { CONTESTANTS } from '../contestants/index.mjs';
import { contended } from './contended.mjs';
import { crowd } from './crowd.mjs';
import { dueTogether } from './due-together.mjs';
import { held } from './held.mjs';
import { keysLeft } from './keys-left.mjs';
import { redlock } from './redlock.mjs';
import { secondRoundTrips } from './second-round-trips.mjs';
import { uncontended } from './uncontended.mjs';
import { wakeUp } from './wake-up.mjs';

export const SCENARIOS = {
  'one-at-a-time': uncontended({ title: 'Uncontended, one at a time', inFlight: 1 }),
  '200-in-flight': uncontended({ title: '200 in flight on different keys', inFlight: 200 }),
  '1x100-0ms': contended({ title: '100 waiters in one process, 0 ms hold', processes: 1, waiters: 100, holdMs: 0 }),
  '1x100-1ms': contended({ title: '100 waiters in one process, 1 ms hold', processes: 1, waiters: 100, holdMs: 1 }),
  '4x25-0ms': contended({ title: '4 processes × 25 waiters, 0 ms hold', processes: 4, waiters: 25, holdMs: 0 }),
  '4x25-1ms': contended({ title: '4 processes × 25 waiters, 1 ms hold', processes: 4, waiters: 25, holdMs: 1 }),
  'fair-4x25': contended({
    title: 'Fair mode, 4 processes × 25 waiters, 0 ms hold',
    processes: 4,
    waiters: 25,
    holdMs: 0,
    fair: true,
  }),
  crowd,
  held,
  'due-together': dueTogether,
  redlock: redlock({ title: 'Redlock of 5, with 0, 1, 2 and 3 nodes stopped', isFresh: false }),
  'redlock-fresh': redlock({ title: 'Redlock of 5, fresh keys, with 0, 1 and 2 nodes stopped', isFresh: true }),
  'second-round-trips': secondRoundTrips,
  'wake-up': wakeUp,
  'keys-left': keysLeft({ title: 'Keys left after 200 000 different locks', groups: ['uncontended'] }),
  'keys-left-redlock': keysLeft({
    title: 'Keys left on a node of a Redlock of 5 after 200 000 different locks',
    groups: ['keys-left-redlock'],
    nodes: 5,
  }),
};

/** @returns whether a contestant takes part in a scenario */
export function takesPart(contestant, scenario) {
  const { groups, also = [] } = SCENARIOS[scenario];
  return also.includes(contestant) || groups.some((group) => CONTESTANTS[contestant].takesPart.includes(group));
}
