import * as decisions from '../../lib/stores/redis/redlock/decisions.js';
import { SCRIPTS } from './node.js';
import type { Clocks, Setting } from './redlock.js';

/**
 * How far a proposal may differ from the clock of a voting node, and how long a node does not vote when it has lost its
 * data.
 */
const LIMIT = 4;
const WAITS = 30;
/** Clocks that differ by a little less than such a node waits, without twice the limit. */
const APART = 17;
const SKEWED: Clocks = { ahead: [APART, APART, 0], limit: LIMIT, waits: WAITS };
const ONE_FAST: Clocks = { ...SKEWED, ahead: [APART, 0, 0] };
const ALIKE: Clocks = { ...SKEWED, ahead: [0, 0, 0] };
/** Clients propose by clocks that are far behind the clocks of the nodes, or far ahead. */
const BEHIND = -16;
const AHEAD = APART + 16;
const EITHER = [BEHIND, AHEAD];

const NO_COUNTERS = [undefined, undefined, undefined];
/** All counters as high as one vote can bring them, as after a write-back. */
const HIGHEST = [0, 1, 2].map(() => WAITS + APART + LIMIT);

/** Two attempts at one key, with proposals behind the counters and ahead of them. */
const TWO = { attempts: [0, 0], proposals: [1, 2].map(() => [1, 4]), fences: [[1, 1, 2]] };
/** Two attempts next to one at another key, which has the same counters. */
const BESIDE = { ...TWO, attempts: [0, 0, 1], proposals: [1, 2, 3].map(() => [1, 4]) };
const LOSS = { attempts: [0, 0], proposals: [EITHER, EITHER], clocks: SKEWED, wipes: 1, fences: [NO_COUNTERS] };
/** The first with the highest possible tokens, the second with the lowest. */
const EXTREME = { ...LOSS, proposals: [[AHEAD], [BEHIND]] };
/** Two votes for one key split so that its write-back meets a node with older data. */
const SPLIT = { ...LOSS, clocks: ALIKE, proposals: [[0], [1]], fences: [[1, 1, WAITS]], snapshots: true };

type Named = Record<string, Setting>;
type Changed = Omit<Setting, 'scripts' | 'decisions'> & Partial<Setting>;

/** Locks end at any moment; no command of a finished attempt runs any more. */
const early = (setting: Changed): Setting => ({ scripts: SCRIPTS, decisions, jumps: true, tidy: true, ...setting });
/** The same, where attempts come one after the other. */
const inTurn = (setting: Changed): Setting => early({ ...setting, atOnce: 1 });
/** No lock ends before the lease of its holder. */
const intact = (setting: Changed): Setting => early({ ...setting, jumps: false });

/** The settings that must hold. The report uses their names. */
export const SHORT: Named = {
  '1 after the other, locks end at any moment': inTurn(TWO),
  '1 after the other, locks end at any moment, a node restarts with older data': inTurn({
    ...LOSS,
    proposals: [[1], [0]],
    clocks: ALIKE,
    snapshots: true,
  }),
  '2 at once, locks end at any moment': early({ ...TWO, proposals: [[1], [4]] }),
  '2 at once, no lock ends early': intact({ ...TWO, proposals: [[1], [4]] }),
};

export const LONG: Named = {
  '2 at once, next to another key of their counter, locks end at any moment': early(BESIDE),
  '2 at once, locks end at any moment, from other counters and proposals': early({
    ...TWO,
    proposals: [1, 2].map(() => [1, 3, 6]),
    fences: [
      [1, 1, 1],
      [1, 1, 2],
      [1, 2, 3],
    ],
  }),
  '2 at once, locks end at any moment, commands arrive however late': early({ ...TWO, tidy: false }),
  '2 at once, next to another key of their counter, locks end at any moment, commands arrive however late': early({
    ...BESIDE,
    tidy: false,
  }),
  '2 at once, locks end at any moment, a vote is lost and asked for again': early({ ...TWO, resends: 1 }),
  '3 at once, locks end at any moment': early({ ...TWO, attempts: [0, 0, 0], proposals: [1, 2, 3].map(() => [1, 4]) }),
  '1 after the other, next to another key of their counter, locks end at any moment, from all proposals':
    inTurn(BESIDE),
  '2 at once of 2 at each of two keys, locks end at any moment': early({
    ...TWO,
    attempts: [0, 0, 1, 1],
    proposals: [1, 2, 3, 4].map(() => [1, 4]),
    atOnce: 2,
  }),
  '2 at once, next to another key of their counter, no lock ends early': intact(BESIDE),
  '2 at once, no lock ends early, commands arrive however late': intact({ ...TWO, tidy: false }),
  '1 after the other, locks end at any moment, a node restarts with older data or none, clocks differ': inTurn({
    ...LOSS,
    fences: [NO_COUNTERS, HIGHEST],
    snapshots: true,
  }),
  '1 after the other, locks end at any moment, a node restarts with older data or none, one clock is ahead': inTurn({
    ...LOSS,
    clocks: ONE_FAST,
    snapshots: true,
  }),
  '1 after the other, locks end at any moment, a node loses its data, clocks differ, commands arrive however late':
    inTurn({ ...LOSS, tidy: false }),
  '1 after the other, next to another key, a node restarts with older data or none, clocks differ': inTurn({
    ...EXTREME,
    attempts: [0, 0, 1],
    proposals: [[AHEAD], [BEHIND], [AHEAD]],
    fences: [NO_COUNTERS, HIGHEST],
    snapshots: true,
  }),
  '2 at once, locks end at any moment, a node loses its data, clocks differ': early(EXTREME),
  '2 at once, locks end at any moment, a node loses its data': early({ ...LOSS, clocks: ALIKE, proposals: [[0], [1]] }),
  '2 at once, locks end at any moment, a node restarts with older data or none, clocks differ': early({
    ...EXTREME,
    snapshots: true,
  }),
  '2 at once, locks end at any moment, a node restarts with older data or none, from split votes': early(SPLIT),
  '2 at once, no lock ends early, a node loses its data, clocks differ': intact(EXTREME),
  '2 at once, no lock ends early, a node loses its data, the first lease is extended': intact({
    ...LOSS,
    clocks: ALIKE,
    proposals: [[1], [0]],
    extensions: 1,
  }),
  '2 at once, no lock ends early, a node restarts with older data or none, clocks differ': intact({
    ...EXTREME,
    snapshots: true,
  }),
};

/** Scripts whose vote or write-back is wrong. */
const voting = (vote: Setting['scripts']['vote']) => ({ ...SCRIPTS, vote });
const raising = (raise: Setting['scripts']['raise']) => ({ ...SCRIPTS, raise });
const deciding = (wrong: Partial<Setting['decisions']>) => ({ ...decisions, ...wrong });

/** Two attempts with the same proposal, which suffices for most errors. */
const EQUAL = early({ ...TWO, proposals: [[1], [1]] });

/** The settings that must fail. */
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
    decisions: deciding({ validatedRaise: (raise) => raise }),
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
  'a node that lost its data votes at once': intact({
    ...LOSS,
    proposals: [[1], [0]],
    clocks: ALIKE,
    fences: [HIGHEST],
    unguarded: true,
  }),
  'a proposal may be ahead of the node without a limit': inTurn({
    ...LOSS,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, clock: Math.max(asked.clock, asked.proposal) }),
    ),
  }),
  'a proposal may be behind the node without a limit': inTurn({
    ...LOSS,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, clock: Math.min(asked.clock, asked.proposal) }),
    ),
  }),
  'counters of older data go on by one': inTurn({
    ...LOSS,
    proposals: [[BEHIND], [BEHIND]],
    fences: [[1, 1, 1]],
    snapshots: true,
    scripts: voting((node, owner, asked) =>
      SCRIPTS.vote(node, owner, { ...asked, proposal: node.fence === undefined ? asked.clock : 0, limit: Infinity }),
    ),
  }),
  'lease not checked when the answers have come': { ...EQUAL, jumps: false, unchecked: true },
  'release without the owner check': intact({
    ...TWO,
    attempts: [0, 0, 0],
    proposals: [[4], [4], [4]],
    scripts: { ...SCRIPTS, release: (node) => [{ fence: node.fence }, { status: 'released' }] },
  }),
};

/** More of these, which take longer to find. */
export const LONG_MUTANTS: Named = {
  'clocks that differ by more than a restarted node waits': inTurn({
    ...EXTREME,
    clocks: { ...SKEWED, ahead: [APART + 2 * LIMIT, APART + 2 * LIMIT, 0] },
    proposals: [[AHEAD + 2 * LIMIT], [BEHIND]],
  }),
  'a restarted node does not wait for twice the limit': inTurn({
    ...EXTREME,
    clocks: { ...SKEWED, waits: WAITS - 2 * LIMIT },
  }),
  'a write-back counts on a node that has restarted since its vote': early({ ...SPLIT, forgetsConnections: true }),
};
