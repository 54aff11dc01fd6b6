import { expect, it } from 'vitest';

interface Note {
  what: string;
  at: number;
  turn?: number;
  token?: number;
  [term: string]: unknown;
}
interface Cell {
  contestant: string;
  fault: string;
  seed: number;
  result?: { lost: number; idleMs?: number };
  failure?: string;
}
const bench = (path: string) => import(new URL(`../../bench/faults/${path}`, import.meta.url).href) as Promise<object>;
const { judge } = (await bench('judge.mjs')) as { judge: (history: object) => Record<string, unknown> };
const { blindControls } = (await bench('controls.mjs')) as { blindControls: (cells: Cell[]) => string[] };
const { createResource } = (await bench('resource.mjs')) as {
  createResource: () => {
    read: (terms: { token?: number }) => { plain: number; fenced: number | null };
    write: (terms: { base: { plain: number; fenced: number | null }; token?: number }) => void;
    sum: () => object;
  };
};

let turns = 0;

/** A finished turn, whose holder believed in its lock until `believed`. */
function turnOf(begin: number, end: number, terms: { believed?: number; knew?: number; token?: number } = {}): Note[] {
  const { believed = end, knew, token } = terms;
  const turn = ++turns;
  return [
    { what: 'ask', at: begin - 10, turn },
    { what: 'begin', at: begin, turn, token },
    { what: 'end', at: end, turn, believed, knew },
    { what: 'done', at: end + 5, turn },
  ];
}

const verdict = (journals: Note[][], more: object = {}) =>
  judge({ journals, fault: { start: 1_000, end: 2_000 }, endedAt: 10_000, sum: { lost: 0 }, ttlMs: 3_000, ...more });

it('the judge counts a turn that begins while an earlier holder still believes that it holds the lock', () => {
  const journals = [turnOf(900, 3_000), turnOf(1_500, 1_600), turnOf(2_500, 2_600), turnOf(3_100, 3_200)];
  expect(verdict(journals)).toMatchObject({ turns: 4, overlaps: 2, unaware: 2, unawareMs: 1_500 });
});

it('the judge does not count a turn that begins after the holder has stopped', () => {
  // It was paused at 1 000, and learned of it when it next asked.
  const paused = turnOf(900, 5_000, { believed: 1_000, knew: 5_000 });
  expect(verdict([paused, turnOf(4_000, 4_100)])).toMatchObject({ overlaps: 1, unaware: 0, unawareMs: 0 });
});

it('for the judge, a killed holder ends when it was killed, and a holder that never ends holds until the end', () => {
  const open = (begin: number): Note[] => [
    { what: 'ask', at: begin, turn: 1 },
    { what: 'begin', at: begin, turn: 1 },
  ];
  expect(verdict([open(900), turnOf(4_000, 9_900)], { killedAt: 1_000 })).toMatchObject({ overlaps: 0, idleMs: 3_000 });
  expect(verdict([open(900), turnOf(4_000, 9_900)])).toMatchObject({ overlaps: 1, idleMs: 0 });
});

it('the judge measures how long nobody had the lock after the fault, and when the next turn began', () => {
  const journals = [turnOf(100, 200), turnOf(900, 1_200), turnOf(4_200, 4_300), turnOf(4_400, 9_000)];
  expect(verdict(journals)).toMatchObject({ idleMs: 3_000, nextMs: 2_200 });
  expect(verdict([turnOf(900, 1_200)])).toMatchObject({ idleMs: 8_800, nextMs: null });
});

it('the judge counts tokens that do not grow, also where processes alternate', () => {
  const first = [...turnOf(100, 200, { token: 7 }), ...turnOf(500, 600, { token: 7 })];
  const second = [...turnOf(300, 400, { token: 8 }), ...turnOf(700, 800, { token: 9 })];
  expect(verdict([first, second])).toMatchObject({ tokensBack: 1 });
});

it('the judge distinguishes refused calls, turns that ended with an error, and calls that never return', () => {
  const journal: Note[] = [
    { what: 'ask', at: 100, turn: 1 },
    { what: 'failed', at: 200, turn: 1, error: 'LOCK_UNAVAILABLE: no answer' },
    { what: 'ask', at: 300, turn: 2 },
    { what: 'begin', at: 400, turn: 2 },
    { what: 'end', at: 500, turn: 2, believed: 450, knew: 500 },
    { what: 'failed', at: 510, turn: 2, error: 'LOCK_LOST: it expired' },
    { what: 'unhandled', at: 600, error: 'Error: nobody caught it' },
    { what: 'ask', at: 3_000, turn: 3 },
  ];
  expect(verdict([journal])).toMatchObject({
    refused: { LOCK_UNAVAILABLE: 1 },
    failed: { LOCK_LOST: 1 },
    unhandled: 1,
    lastUnhandled: 'Error: nobody caught it',
    stuck: 1,
  });
});

it('the resource counts an overwritten update, and refuses an old token, even one that a newer reader has passed', () => {
  const { read, write, sum } = createResource();
  const early = read({ token: 1 });
  const late = read({ token: 2 });
  write({ base: early, token: 1 });
  write({ base: late, token: 2 });
  expect(sum()).toEqual({ writes: 2, lost: 1, lostFenced: 0, refusedWrites: 1 });
});

it('a run is refused if a control does not fail', () => {
  const cell = (contestant: string, fault: string, lost: number): Cell => ({
    contestant,
    fault,
    seed: 1,
    result: { lost },
  });
  expect(
    blindControls([cell('no-lock', 'none', 3), cell('set-nx', 'none', 0), cell('set-nx', 'holder-paused', 1)]),
  ).toEqual([]);
  expect(blindControls([cell('no-lock', 'none', 3), cell('no-lock', 'failover', 0)])).toEqual([
    expect.stringContaining('failover (seed 1)'),
  ]);
  expect(blindControls([cell('set-nx', 'none', 0), cell('set-nx', 'holder-paused', 0)])).toHaveLength(1);
  const cut = (idleMs: number) => ({
    ...cell('set-nx', 'acquire-reply-lost', 0),
    result: { lost: 0, idleMs },
  });
  expect(blindControls([cut(2_900)])).toEqual([]);
  expect(blindControls([cut(200)])).toHaveLength(1);
  expect(blindControls([{ contestant: 'no-lock', fault: 'none', seed: 1, failure: 'no result' }])).toHaveLength(1);
});
