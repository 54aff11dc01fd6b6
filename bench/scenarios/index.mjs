/**
 * The scenarios. A scenario is an object with `title`, `groups` (which contestants take part), `baseline` (the others are
 * compared with it), `coordinate(cell)` (runs in the process of the cell, returns its figures) and `tasks` (run in its
 * client processes). A scenario with `once` is not repeated: its figures do not depend on chance. A scenario with `limitMs`
 * may take that long. In a scenario with `beside`, the first process runs the contestant, and each other process a baseline.
 * A scenario with `node` runs on that version of Node.js.
 */
import { CONTESTANTS } from '../contestants/index.mjs';
import { clusterHandOffs } from './cluster-hand-offs.mjs';
import { contended } from './contended.mjs';
import { crowd } from './crowd.mjs';
import { deadPlaces } from './dead-places.mjs';
import { dueTogether } from './due-together.mjs';
import { heldInCluster } from './held-in-cluster.mjs';
import { held } from './held.mjs';
import { hotKey } from './hot-key.mjs';
import { keysLeft } from './keys-left.mjs';
import { leader } from './leader.mjs';
import { burst, waiting } from './overload.mjs';
import { redlockFar } from './redlock-far.mjs';
import { redlock, redlockCold } from './redlock.mjs';
import { secondRoundTrips } from './second-round-trips.mjs';
import { sets } from './sets.mjs';
import { permits, readers } from './several-holders.mjs';
import { sql } from './sql.mjs';
import { uncontended, uncontendedApart } from './uncontended.mjs';
import { wakeUp } from './wake-up.mjs';

export const SCENARIOS = {
  'one-at-a-time': uncontended({ title: 'Uncontended, one at a time', inFlight: 1 }),
  '200-in-flight': uncontended({ title: '200 in flight on different keys', inFlight: 200 }),
  'one-at-a-time-apart': uncontendedApart({
    title: 'Uncontended, one at a time, each in a process of its own',
    inFlight: 1,
  }),
  'one-at-a-time-cold': uncontendedApart({
    title: 'Uncontended, one at a time, the first second of a process',
    inFlight: 1,
    isCold: true,
  }),
  'one-at-a-time-fair': uncontended({ title: 'Fair mode, uncontended, one at a time', inFlight: 1, fair: true }),
  'one-at-a-time-unawaited': uncontended({
    title: 'Uncontended, one at a time, with awaitRelease: false',
    inFlight: 1,
    awaitRelease: false,
  }),
  '200-in-flight-apart': uncontendedApart({
    title: '200 in flight on different keys, each in a process of its own',
    inFlight: 200,
  }),
  'one-at-a-time-node-24': uncontendedApart({
    title: 'Uncontended, one at a time, each in a process of its own, Node.js 24',
    inFlight: 1,
    node: '24',
  }),
  '200-in-flight-node-24': uncontendedApart({
    title: '200 in flight on different keys, each in a process of its own, Node.js 24',
    inFlight: 200,
    node: '24',
  }),
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
  held: held({ title: '2 000 held and renewed locks, ttl 3 s, 10 s', locks: 2_000, groups: ['held'] }),
  'held-20k': held({
    title: '20 000 held and renewed locks, ttl 3 s, 10 s',
    locks: 20_000,
    also: ['library', 'raw'],
  }),
  'due-together': dueTogether,
  redlock: redlock({ title: 'Redlock of 5, with 0, 1, 2 and 3 nodes stopped', isFresh: false }),
  'redlock-fresh': redlock({ title: 'Redlock of 5, fresh keys, with 0, 1 and 2 nodes stopped', isFresh: true }),
  'redlock-cold': redlockCold,
  'second-round-trips': secondRoundTrips,
  'wake-up': wakeUp({
    title: 'Wake-up after a hold of 500 to 750 ms, by another process',
    holdMs: [500, 750],
    groups: ['wake-up'],
  }),
  'wake-up-40ms': wakeUp({
    title: 'Wake-up after a hold of 40 ms, by another process',
    holdMs: [40, 41],
    also: ['library', 'raw-queue', 'raw-confirmed-queue'],
  }),
  'wake-up-1300ms': wakeUp({
    title: 'Wake-up after a hold of 1.3 s, by another process',
    holdMs: [1_300, 1_310],
    also: ['library', 'raw-queue', 'raw-confirmed-queue'],
  }),
  'keys-left': keysLeft({ title: 'Keys left after 200 000 different locks', groups: ['uncontended'] }),
  'keys-left-redlock': keysLeft({
    title: 'Keys left on a node of a Redlock of 5 after 200 000 different locks',
    groups: ['keys-left-redlock'],
    nodes: 5,
  }),
  'dead-places': deadPlaces({ title: 'Twenty waiting processes are killed, one Redis' }),
  'dead-places-cluster': deadPlaces({ title: 'Twenty waiting processes are killed, a Cluster of 3', masters: 3 }),
  'hot-key': hotKey,
  'hand-offs-cluster-3': clusterHandOffs({ title: 'Hand-offs in a Cluster of 3, 100 a second', masters: 3 }),
  'hand-offs-cluster-9': clusterHandOffs({ title: 'Hand-offs in a Cluster of 9, 100 a second', masters: 9 }),
  'waits-2x100k': waiting({
    title: '100 000 keys (quick: 10 000), each waited for by two processes',
    waits: 100_000,
    quickWaits: 10_000,
    processes: 2,
  }),
  'waits-10k': waiting({
    title: '10 000 keys (quick: 2 000) waited for by one process',
    waits: 10_000,
    quickWaits: 2_000,
  }),
  'waits-fair-10k': waiting({
    title: '10 000 calls (quick: 2 000) that wait for one key, fair mode',
    waits: 10_000,
    quickWaits: 2_000,
    areOfOneKey: true,
  }),
  'held-beside-waits': waiting({
    title: '1 000 held locks beside 35 000 waits (quick: 5 000) of the same process',
    waits: 35_000,
    quickWaits: 5_000,
    held: 1_000,
  }),
  burst,
  'held-cluster': heldInCluster,
  'redlock-far': redlockFar,
  'sets-2': sets({ size: 2 }),
  'sets-5': sets({ size: 5 }),
  'permits-0ms': permits({ title: 'Permits: 3 at a time among 4 processes × 25 calls, 0 ms hold', holdMs: 0 }),
  'permits-20ms': permits({ title: 'Permits: 3 at a time among 4 processes × 25 calls, 20 ms hold', holdMs: 20 }),
  'readers-1ms': readers({
    title: 'A shared lock: 4 processes × 25 readers, 1 ms hold, and ten writes a second',
    holdMs: 1,
  }),
  leader,
  sql: sql({ title: 'Locks in a table of PostgreSQL', id: 'postgres' }),
  'sql-mariadb': sql({ title: 'Locks in a table of MariaDB', id: 'mariadb' }),
};

/** @returns whether a contestant takes part in a scenario */
export function takesPart(contestant, scenario) {
  const { groups = [], also = [] } = SCENARIOS[scenario];
  return also.includes(contestant) || groups.some((group) => CONTESTANTS[contestant].takesPart.includes(group));
}
