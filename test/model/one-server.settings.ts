import type { Setting } from './one-server.js';
import { mint, type Known, type Mint } from './server.js';

type Named = Record<string, Setting>;

const base: Setting = { mint, calls: 3, together: 2, counts: [1, 2], lastMoment: 4 };

/** What has to hold. The names end up in the report. */
export const SHORT: Named = {
  'the clock steps twice': { ...base, clockSteps: 2 },
  'the counter is lost, or an older one goes on': { ...base, losses: 1 },
};

export const LONG: Named = {
  'four calls, the clock steps twice': { ...base, calls: 4, lastMoment: 6, clockSteps: 2 },
  'three locks in a call, the clock steps twice': { ...base, together: 3, lastMoment: 5, clockSteps: 2 },
  'twice, the counter is lost, or an older one goes on': { ...base, lastMoment: 6, losses: 2 },
  'the clock steps twice; twice, the counter is lost, or an older one goes on': { ...base, clockSteps: 2, losses: 2 },
};

/** How far the counter of the horizon runs ahead of the clock. */
const HORIZON = 4;
/** A counter that is behind the clock by no more than this is gone on from, by a mutant. */
const FAR = 2;

/**
 * An alternative that was rejected, although its grants rarely write: the counter is a time that no token has reached yet.
 * While the clock is behind it, but by no more than the horizon, the token is the time alone.
 */
const horizon: Mint = ({ us, counter = 0, minted }, count) => {
  const first = Math.max(us, (minted ?? 0) + 1);
  const last = first + count - 1;
  if (us < counter && us >= counter - HORIZON) return { first, last, counter };
  if (us >= counter) return { first, last, counter: us + HORIZON };
  return { first: counter, last: counter + count - 1, counter: counter + count + HORIZON };
};

/** The rule with another counter, or another first token. */
const mutant =
  (change: (known: Known, count: number, minted: ReturnType<Mint>) => Partial<ReturnType<Mint>>): Mint =>
  (known, count) => {
    const minted = mint(known, count);
    const changed = { ...minted, ...change(known, count, minted) };
    return { ...changed, last: changed.first + minted.last - minted.first };
  };

/** What has to fail. */
export const MUTANTS: Named = {
  'the clock alone': { ...base, mint: mutant(({ us, minted = 0 }) => ({ first: Math.max(us, minted + 1) })) },
  'the counter alone, once there is one': {
    ...base,
    losses: 1,
    mint: (known, count) => mint({ ...known, us: known.counter === undefined ? known.us : 0 }, count),
  },
  'the clock only when the counter is far behind it': {
    ...base,
    losses: 1,
    mint: (known, count) => mint({ ...known, us: known.us > (known.counter ?? -FAR) + FAR ? known.us : 0 }, count),
  },
  'a block is not reserved': { ...base, mint: mutant((_known, _count, { first }) => ({ counter: first })) },
  'the counter is overwritten with the time': { ...base, mint: mutant(({ us }) => ({ counter: us })) },
  'a call forgets what it has minted': {
    ...base,
    mint: ({ us, counter, minted }, count) => mint({ us, counter: minted === undefined ? counter : undefined }, count),
  },
  'a horizon, and the clock steps back within it': {
    ...base,
    mint: horizon,
    together: 1,
    counts: [1],
    clockSteps: 1,
    callsTakeTime: true,
  },
  'a horizon, and a block reaches ahead of the clock': { ...base, mint: horizon, together: 1, callsTakeTime: true },
  'a server that goes on without the counter has a clock that is behind': { ...base, losses: 1, anyClock: true },
};
