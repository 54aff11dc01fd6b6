import * as decisions from '../../lib/stores/redis/redlock/decisions.js';
import { SCRIPTS } from './node.js';
import { LONGEST_LEASE, UNIT, type Setting } from './redlock.js';

const real = { scripts: SCRIPTS, decisions };
/** Clocks that differ by a little less than a node that lost its data waits until it votes. */
const SKEWED = [LONGEST_LEASE * UNIT - 10, LONGEST_LEASE * UNIT - 10, 0];
/** All counters at the fastest of these clocks, as after a write-back. */
const FASTEST = SKEWED.map(() => UNIT + Math.max(...SKEWED));
const NO_COUNTERS = [undefined, undefined, undefined];

type Named = Record<string, Setting>;

/** What has to hold. The names end up in the report. */
export const SHORT: Named = {
  '1 after the other, locks end at any moment': {
    ...real,
    attempts: 2,
    atOnce: 1,
    fences: [[1, 1, 2]],
    jumps: true,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node loses its data, clocks differ': {
    ...real,
    attempts: 2,
    atOnce: 1,
    fences: [NO_COUNTERS],
    jumps: true,
    wipes: 1,
    ahead: SKEWED,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node restarts with an older snapshot, clocks differ': {
    ...real,
    attempts: 2,
    atOnce: 1,
    fences: [NO_COUNTERS, [1, 1, 1], FASTEST],
    jumps: true,
    wipes: 1,
    snapshots: true,
    ahead: SKEWED,
    tidy: true,
  },
  '2 at once, no lock ends early': { ...real, attempts: 2, fences: [[1, 1, 1]], tidy: true },
};

export const LONG: Named = {
  '2 at once, locks end at any moment, commands arrive however late': {
    ...real,
    attempts: 2,
    fences: [[1, 1, 2]],
    jumps: true,
  },
  'the same, from three different counters': { ...real, attempts: 2, fences: [[1, 2, 3]], jumps: true },
  '2 at once, locks end at any moment, a vote is lost and asked for again': {
    ...real,
    attempts: 2,
    fences: [[1, 1, 2]],
    jumps: true,
    resends: 1,
    tidy: true,
  },
  '3 attempts, 2 at once, locks end at any moment': {
    ...real,
    attempts: 3,
    atOnce: 2,
    fences: [[1, 1, 2]],
    jumps: true,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node loses its data, clocks differ, commands arrive however late': {
    ...real,
    attempts: 2,
    atOnce: 1,
    fences: [[1, 1, 2]],
    jumps: true,
    wipes: 1,
    ahead: SKEWED,
  },
  '2 at once, no lock ends early, commands arrive however late': { ...real, attempts: 2, fences: [[1, 1, 2]] },
  '2 at once, no lock ends early, a node loses its data': {
    ...real,
    attempts: 2,
    fences: [[1, 1, 1]],
    wipes: 1,
    tidy: true,
  },
  '2 at once, no lock ends early, a node loses its data, the first lease is extended': {
    ...real,
    attempts: 2,
    fences: [[1, 1, 1]],
    wipes: 1,
    extensions: 1,
    tidy: true,
  },
  '2 at once, no lock ends early, a node restarts with an older snapshot': {
    ...real,
    attempts: 2,
    fences: [[1, 1, 1]],
    wipes: 1,
    snapshots: true,
    tidy: true,
  },
};

/** What has to fail. */
export const MUTANTS: Named = {
  'no write-back': {
    ...real,
    tidy: true,
    attempts: 2,
    fences: [[1, 1, 2]],
    jumps: true,
    decisions: {
      ...decisions,
      tallyVotes: (...votes) => {
        const tally = decisions.tallyVotes(...votes);
        return tally?.status === 'write-back' ? { status: 'issued', fencingToken: tally.fencingToken } : tally;
      },
    },
  },
  'write-back without the owner check': {
    ...real,
    tidy: true,
    attempts: 2,
    fences: [[1, 1, 2]],
    jumps: true,
    scripts: {
      ...SCRIPTS,
      raise: (node, _owner, token) => [{ ...node, fence: Math.max(node.fence ?? 0, token) }, { status: 'raised' }],
    },
  },
  'a node that was told the token counts, whatever its vote': {
    ...real,
    tidy: true,
    attempts: 2,
    fences: [[1, 1, 2]],
    jumps: true,
    decisions: { ...decisions, acknowledged: (raise) => raise },
  },
  'counter not re-seeded': {
    ...real,
    tidy: true,
    attempts: 2,
    atOnce: 1,
    fences: [[5, 5, 1]],
    wipes: 1,
    scripts: { ...SCRIPTS, vote: (node, owner) => SCRIPTS.vote(node, owner, 1, 0) },
  },
  'counters of an older snapshot go on': {
    ...real,
    tidy: true,
    attempts: 2,
    atOnce: 1,
    fences: [[1, 1, 1]],
    jumps: true,
    wipes: 1,
    snapshots: true,
    scripts: { ...SCRIPTS, vote: (node, owner, clock) => SCRIPTS.vote(node, owner, clock, 0) },
  },
  'counters of an older snapshot go on that are above the time of the restart': {
    ...real,
    tidy: true,
    attempts: 2,
    atOnce: 1,
    fences: [FASTEST],
    jumps: true,
    wipes: 1,
    snapshots: true,
    ahead: SKEWED,
    scripts: {
      ...SCRIPTS,
      vote: (node, owner, clock, votesFrom) => SCRIPTS.vote(node, owner, clock, votesFrom - LONGEST_LEASE * UNIT),
    },
  },
  'restarted node votes at once': { ...real, tidy: true, attempts: 2, fences: [[1, 1, 1]], wipes: 1, unguarded: true },
  'lease not checked when the answers have come': {
    ...real,
    tidy: true,
    attempts: 2,
    fences: [[1, 1, 1]],
    unchecked: true,
  },
};

/** More of these, which take longer to find. */
export const LONG_MUTANTS: Named = {
  'clocks that differ by more than a restarted node waits': {
    ...real,
    tidy: true,
    attempts: 2,
    atOnce: 1,
    fences: [NO_COUNTERS],
    wipes: 1,
    ahead: SKEWED.map((ahead) => ahead && ahead + 20),
  },
  'release without the owner check': {
    ...real,
    tidy: true,
    attempts: 3,
    fences: [[1, 1, 1]],
    scripts: { ...SCRIPTS, release: (node) => [{ fence: node.fence }, { status: 'released' }] },
  },
};
