import * as decisions from '../../lib/stores/redis/redlock/decisions.js';
import { SCRIPTS } from './node.js';
import type { Clocks, Setting } from './redlock.js';

const real = { scripts: SCRIPTS, decisions };

/** How far from its clock a node votes, and for how long it does not vote when it has lost its data. */
const LIMIT = 4;
const WAITS = 30;
/** Clocks that differ by a little less than such a node waits, without twice the limit. */
const APART = 17;
const SKEWED: Clocks = { ahead: [APART, APART, 0], limit: LIMIT, waits: WAITS };
const ONE_FAST: Clocks = { ...SKEWED, ahead: [APART, 0, 0] };
const ALIKE: Clocks = { ...SKEWED, ahead: [0, 0, 0] };
/** Clients propose by clocks that are far behind those of the nodes, or far ahead. */
const BEHIND = -16;
const AHEAD = APART + 16;
const EITHER = [BEHIND, AHEAD];

const NO_COUNTERS = [undefined, undefined, undefined];
/** All counters as high as one vote can bring them, as after a write-back. */
const HIGHEST = [0, 1, 2].map(() => WAITS + APART + LIMIT);

/** Two attempts at one key, with proposals behind the counters and ahead of them. */
const TWO = { attempts: [0, 0], proposals: [1, 2].map(() => [1, 4]), fences: [[1, 1, 2]] };
/** The same beside one at another key, which has the same counters. */
const BESIDE = { ...TWO, attempts: [0, 0, 1], proposals: [1, 2, 3].map(() => [1, 4]) };
const LOSS = { attempts: [0, 0], proposals: [EITHER, EITHER], clocks: SKEWED, wipes: 1, fences: [NO_COUNTERS] };
/** The first with the highest tokens, the second with the lowest that are possible. */
const EXTREME = { ...LOSS, proposals: [[AHEAD], [BEHIND]] };
/** Two votes for one key split so that its write-back meets a node with older data. */
const SPLIT = { ...LOSS, clocks: ALIKE, proposals: [[0], [1]], fences: [[1, 1, WAITS]], snapshots: true };

const early = { jumps: true } as const;

type Named = Record<string, Setting>;

/** What has to hold. The names end up in the report. */
export const SHORT: Named = {
  '1 after the other, locks end at any moment': { ...real, ...TWO, ...early, atOnce: 1, tidy: true },
  '1 after the other, locks end at any moment, a node restarts with older data': {
    ...real,
    ...LOSS,
    ...early,
    proposals: [[1], [0]],
    clocks: ALIKE,
    snapshots: true,
    atOnce: 1,
    tidy: true,
  },
  '2 at once, locks end at any moment': { ...real, ...TWO, ...early, proposals: [[1], [4]], tidy: true },
  '2 at once, no lock ends early': { ...real, ...TWO, proposals: [[1], [4]], tidy: true },
};

export const LONG: Named = {
  '1 after the other, beside another key of their counter, locks end at any moment': {
    ...real,
    ...BESIDE,
    ...early,
    proposals: [[4], [4], [1]],
    atOnce: 1,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node loses its data, clocks differ': {
    ...real,
    ...LOSS,
    ...early,
    atOnce: 1,
    tidy: true,
  },
  '2 at once, beside another key of their counter, locks end at any moment': {
    ...real,
    ...BESIDE,
    ...early,
    tidy: true,
  },
  '2 at once, locks end at any moment, from other counters and proposals': {
    ...real,
    ...TWO,
    ...early,
    proposals: [1, 2].map(() => [1, 3, 6]),
    fences: [
      [1, 1, 1],
      [1, 1, 2],
      [1, 2, 3],
    ],
    tidy: true,
  },
  '2 at once, locks end at any moment, commands arrive however late': { ...real, ...TWO, ...early },
  '2 at once, beside another key of their counter, locks end at any moment, commands arrive however late': {
    ...real,
    ...BESIDE,
    ...early,
  },
  '2 at once, locks end at any moment, a vote is lost and asked for again': {
    ...real,
    ...TWO,
    ...early,
    resends: 1,
    tidy: true,
  },
  '3 at once, locks end at any moment': {
    ...real,
    ...TWO,
    ...early,
    attempts: [0, 0, 0],
    proposals: [1, 2, 3].map(() => [1, 4]),
    tidy: true,
  },
  '1 after the other, beside another key of their counter, locks end at any moment, from all proposals': {
    ...real,
    ...BESIDE,
    ...early,
    atOnce: 1,
    tidy: true,
  },
  '2 at once of 2 at each of two keys, locks end at any moment': {
    ...real,
    ...TWO,
    ...early,
    attempts: [0, 0, 1, 1],
    proposals: [1, 2, 3, 4].map(() => [1, 4]),
    atOnce: 2,
    tidy: true,
  },
  '2 at once, beside another key of their counter, no lock ends early': { ...real, ...BESIDE, tidy: true },
  '2 at once, no lock ends early, commands arrive however late': { ...real, ...TWO },
  '1 after the other, locks end at any moment, a node restarts with older data or none, clocks differ': {
    ...real,
    ...LOSS,
    ...early,
    fences: [NO_COUNTERS, HIGHEST],
    snapshots: true,
    atOnce: 1,
    tidy: true,
  },
  '1 after the other, the first ahead and the second behind, a node restarts with older data or none, clocks differ': {
    ...real,
    ...EXTREME,
    ...early,
    fences: [NO_COUNTERS, HIGHEST],
    snapshots: true,
    atOnce: 1,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node restarts with older data or none, one clock is ahead': {
    ...real,
    ...LOSS,
    ...early,
    clocks: ONE_FAST,
    snapshots: true,
    atOnce: 1,
    tidy: true,
  },
  '1 after the other, locks end at any moment, a node loses its data, clocks differ, commands arrive however late': {
    ...real,
    ...LOSS,
    ...early,
    atOnce: 1,
  },
  '1 after the other, beside another key, a node restarts with older data or none, clocks differ': {
    ...real,
    ...EXTREME,
    ...early,
    attempts: [0, 0, 1],
    proposals: [[AHEAD], [BEHIND], [AHEAD]],
    fences: [NO_COUNTERS, HIGHEST],
    snapshots: true,
    atOnce: 1,
    tidy: true,
  },
  '2 at once, locks end at any moment, a node loses its data, clocks differ': {
    ...real,
    ...EXTREME,
    ...early,
    tidy: true,
  },
  '2 at once, locks end at any moment, a node loses its data': {
    ...real,
    ...LOSS,
    ...early,
    clocks: ALIKE,
    proposals: [[0], [1]],
    tidy: true,
  },
  '2 at once, locks end at any moment, a node restarts with older data or none, clocks differ': {
    ...real,
    ...EXTREME,
    ...early,
    snapshots: true,
    tidy: true,
  },
  '2 at once, locks end at any moment, a node restarts with older data or none, from split votes': {
    ...real,
    ...SPLIT,
    ...early,
    tidy: true,
  },
  '2 at once, no lock ends early, a node loses its data, clocks differ': { ...real, ...EXTREME, tidy: true },
  '2 at once, no lock ends early, a node loses its data, the first lease is extended': {
    ...real,
    ...LOSS,
    clocks: ALIKE,
    proposals: [[1], [0]],
    extensions: 1,
    tidy: true,
  },
  '2 at once, no lock ends early, a node restarts with older data or none, clocks differ': {
    ...real,
    ...EXTREME,
    snapshots: true,
    tidy: true,
  },
};

/** Scripts of which the vote or the write-back is wrong. */
const voting = (vote: Setting['scripts']['vote']) => ({ ...SCRIPTS, vote });
const raising = (raise: Setting['scripts']['raise']) => ({ ...SCRIPTS, raise });
const deciding = (wrong: Partial<Setting['decisions']>) => ({ ...decisions, ...wrong });

/** Two attempts that propose the same, which is enough for most that is wrong. */
const EQUAL = { ...real, ...TWO, ...early, proposals: [[1], [1]], tidy: true };

/** What has to fail. */
export const MUTANTS: Named = {
  'no write-back': {
    ...EQUAL,
    decisions: deciding({
      tallyAttempt: (...asked) => {
        const tally = decisions.tallyAttempt(...asked);
        return tally?.status === 'write-back' ? { status: 'issued', fencingToken: tally.fencingToken } : tally;
      },
    }),
  },
  'write-back without the owner check': {
    ...EQUAL,
    scripts: raising((node, _owner, token) => [
      { ...node, fence: Math.max(node.fence ?? 0, token) },
      { status: 'raised' },
    ]),
  },
  'a node that voted for a higher token counts for the write-back': {
    ...EQUAL,
    scripts: raising((node, owner, token) =>
      node.lock?.owner === owner
        ? [{ ...node, fence: Math.max(node.fence ?? 0, token) }, { status: 'raised' }]
        : [node, { status: 'gone' }],
    ),
    decisions: deciding({ acknowledged: (raise) => raise }),
  },
  'the counter takes the proposal, even if that is lower': {
    ...EQUAL,
    scripts: voting((node, owner, asked) => {
      const [after, vote] = SCRIPTS.vote(node, owner, asked);
      return [after === node ? node : { ...after, fence: asked.proposal }, vote];
    }),
  },
  'a vote is for the counter itself, where that is ahead of the proposal': {
    ...EQUAL,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote({ ...node, fence: node.fence && node.fence - 1 }, owner, asked),
    ),
  },
  'a vote is not kept in the counter': {
    ...EQUAL,
    scripts: voting((node, owner, asked) => {
      const [after, vote] = SCRIPTS.vote(node, owner, asked);
      return [{ ...after, fence: node.fence }, vote];
    }),
  },
  'votes above the token count as equal to it': {
    ...EQUAL,
    decisions: deciding({
      tallyAttempt: (...asked) => {
        const [{ answers }, quorum] = asked;
        const tokens = answers.flatMap((vote) => (vote?.status === 'granted' ? [vote.fencingToken] : []));
        const fencingToken = tokens.sort((a, b) => b - a)[quorum - 1];
        return fencingToken === undefined ? decisions.tallyAttempt(...asked) : { status: 'issued', fencingToken };
      },
    }),
  },
  'a node that lost its data votes at once': {
    ...real,
    ...LOSS,
    proposals: [[1], [0]],
    clocks: ALIKE,
    fences: [HIGHEST],
    tidy: true,
    unguarded: true,
  },
  'a proposal may be ahead of the node without a limit': {
    ...real,
    ...LOSS,
    ...early,
    atOnce: 1,
    tidy: true,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, clock: Math.max(asked.clock, asked.proposal) }),
    ),
  },
  'a proposal may be behind the node without a limit': {
    ...real,
    ...LOSS,
    ...early,
    atOnce: 1,
    tidy: true,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, clock: Math.min(asked.clock, asked.proposal) }),
    ),
  },
  'counters of older data go on by one': {
    ...real,
    ...LOSS,
    ...early,
    proposals: [[BEHIND], [BEHIND]],
    fences: [[1, 1, 1]],
    snapshots: true,
    atOnce: 1,
    tidy: true,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, proposal: node.fence === undefined ? asked.clock : 0, limit: Infinity }),
    ),
  },
  'lease not checked when the answers have come': { ...EQUAL, jumps: false, unchecked: true },
  'release without the owner check': {
    ...real,
    ...TWO,
    attempts: [0, 0, 0],
    proposals: [[4], [4], [4]],
    tidy: true,
    scripts: { ...SCRIPTS, release: (node) => [{ fence: node.fence }, { status: 'released' }] },
  },
};

/** More of these, which take longer to find. */
export const LONG_MUTANTS: Named = {
  'clocks that differ by more than a restarted node waits': {
    ...real,
    ...EXTREME,
    ...early,
    clocks: { ...SKEWED, ahead: [APART + 2 * LIMIT, APART + 2 * LIMIT, 0] },
    proposals: [[AHEAD + 2 * LIMIT], [BEHIND]],
    atOnce: 1,
    tidy: true,
  },
  'a restarted node does not wait for twice the limit': {
    ...real,
    ...EXTREME,
    ...early,
    clocks: { ...SKEWED, waits: WAITS - 2 * LIMIT },
    atOnce: 1,
    tidy: true,
  },
  'a write-back counts on a node that has restarted since its vote': {
    ...real,
    ...SPLIT,
    ...early,
    tidy: true,
    forgetsConnections: true,
  },
};
