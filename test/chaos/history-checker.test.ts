import { describe, expect, it } from 'vitest';
import { checkHistory, type Rule, type Terms } from './history-checker.js';
import { CALM_KEY, type Entry, type Hold, type Revived } from './history.js';
import type { FaultKind } from './schedule.js';

const TERMS: Terms = {
  losses: ['flush', 'restart-empty', 'restart-old'],
  livenessMs: 1_000,
  answerMs: 500,
  beatMs: 300,
};
const SHARED: Hold = { mode: 'shared' };

interface TurnOf {
  /** The properties of the turn that are granted separately from its answer. */
  grant?: Partial<Extract<Entry, { type: 'granted' }>>;
  token?: number;
  key?: string;
  hold?: Hold;
  ttlMs?: number;
  asked?: number;
  /** Deadline of its lease. */
  until?: number;
}

/**
 * The entries of a turn of a worker with a lock, as the worker writes them.
 * @param to undefined: it never releases the lock
 */
function turn(worker: number, from: number, to: number | undefined, more: TurnOf = {}): Entry[] {
  const { grant, token, key = 'a', hold, ttlMs = 1_000, asked = from - 1, until = from + ttlMs } = more;
  const name = `${worker}.0.${from}`;
  const entries: Entry[] = [
    { at: asked, type: 'asked', worker, key, turn: name },
    { at: from, type: 'granted', turn: name, token, ttlMs, sentAt: from - 0.5, until, hold, ...grant },
    { at: from + 0.01, type: 'held', turn: name, until },
  ];
  return to === undefined ? entries : [...entries, { at: to, type: 'ended', turn: name, how: 'released' }];
}

function reader(worker: number, token: number | undefined, from: number, to = from + 50, more: TurnOf = {}): Entry[] {
  return turn(worker, from, to, { token, hold: SHARED, ...more });
}

function permits(worker: number, count: number, from: number, limit = 5): Entry[] {
  return turn(worker, from, from + 50, { hold: { mode: 'permits', permits: count, limit } });
}

function access(
  type: 'read' | 'write',
  at: number,
  worker: number,
  base: number,
  token?: number,
  accepted = true,
): Entry {
  return { at, type, turn: `${worker}.0.0`, key: 'a', base, token, accepted };
}

function fault(
  kind: FaultKind,
  at: number,
  until = at,
  more: { worker?: number; forgets?: true; revived?: Revived } = {},
): Entry {
  return { at, type: 'fault', kind, until, ...more };
}

function forced(process: string, at: number, answered?: number, until = 30): Entry {
  return { at, type: 'forced', process, key: 'a', answered, until };
}

/** Histories that break only this rule, any number of times, and similar histories that break none. */
function finds(
  rule: Rule,
  { bad, good = [], terms = {} }: { bad: Entry[][]; good?: Entry[][]; terms?: Partial<Terms> },
): void {
  const broken = (history: Entry[]) => [
    ...new Set(checkHistory(history, { ...TERMS, ...terms }).violations.map((violation) => violation.rule)),
  ];
  expect(bad.map(broken)).toEqual(bad.map(() => [rule]));
  expect(good.map(broken)).toEqual(good.map(() => []));
}

describe('the checker of histories', () => {
  const had = turn(0, 10, 100, { token: 5, grant: { owner: 'x' } });
  const passed = (from: number) => turn(0, from, from + 1, { token: 6, grant: { owner: 'x' } });

  it.each<[Rule, Entry[]]>([
    ['token given twice', [...turn(0, 10, 20, { token: 5, asked: 1 }), ...turn(1, 22, 23, { token: 5, asked: 2 })]],
    ['overlapping holders', [...reader(0, 5, 10), ...turn(1, 20, 30, { token: 6 })]],
    ['overlapping holders', [...reader(0, 5, 10), ...permits(1, 1, 20)]],
    ['two tokens among readers', [...reader(0, 5, 10), ...reader(1, 6, 20)]],
    ['more permits than the limit', [...permits(0, 3, 10), ...permits(1, 1, 20, 3)]],
    ['reader without a token', reader(0, undefined, 10)],
    ['held for too long', turn(0, 10, 320, { grant: { maxHoldMs: 200 } })],
    ['passed on after a loss', [...had, fault('flush', 20, 30, { forgets: true }), ...passed(600)]],
    ['unhandled rejection', [{ at: 1, type: 'unhandled', worker: 0, message: 'Error' }]],
  ])('a history in which there is a %s is not correct', (rule, bad) => finds(rule, { bad: [bad] }));

  it('a lost update is found when a write adds to what was read before another write [G137]', () => {
    const written = access('write', 1, 0, 0, 1);
    finds('lost update', {
      bad: [[written, access('write', 2, 1, 0, 1)]],
      good: [
        [written, access('write', 2, 1, 1, 1)],
        [written, access('write', 2, 1, 0, 0, false)],
        [written, { ...access('write', 2, 1, 0, 1), key: 'b' } as Entry],
      ],
    });
  });

  it('a lost update is found among the writes of transactions, which have no token and are counted [G740]', () => {
    const history = [1, 2].map((at): Entry => ({ ...access('write', at, at, 0), isGuarded: true }) as Entry);
    finds('lost update', { bad: [history] });
    expect(checkHistory(history, TERMS).figures.guardedWrites).toBe(2);
  });

  it('tokens out of order are found when the resource accepts an older one after a newer one [G138]', () => {
    const newer = access('read', 1, 0, 0, 2);
    finds('token out of order at the resource', {
      bad: [[newer, access('read', 2, 1, 0, 1)]],
      good: [[newer, access('read', 2, 1, 0, 1, false)]],
    });
  });

  it('tokens out of order are found when a later call gets a smaller one, however many came in between [G139]', () => {
    const earlier = [...turn(0, 10, 11, { token: 9 }), ...turn(1, 12, 13, { token: 5, asked: 5 })];
    const phases = [...reader(0, 5, 1, 5), ...turn(1, 10, 20, { token: 6 })];
    finds('token not above the token of an earlier holder', {
      bad: [
        [...earlier, ...turn(2, 15, 16, { token: 8 })],
        [...phases, ...reader(2, 5, 30)],
        [...phases, fault('restart-empty', 25), ...reader(2, 5, 30)],
        [...phases, fault('restart-old', 25, 30, { revived: { tokens: [4], tickets: [] } }), ...reader(2, 5, 40)],
      ],
      good: [
        earlier,
        [...earlier, ...turn(2, 15, 16, { token: 8, asked: 9 })],
        // A server that goes back to old data restores old readers.
        [...phases, fault('restart-old', 25), ...reader(2, 5, 30)],
        [...phases, fault('restart-old', 25, 30, { revived: { tokens: [5], tickets: [] } }), ...reader(2, 5, 40)],
      ],
    });
  });

  const first = turn(0, 10, 100, { token: 5 });
  const second = turn(1, 50, 60, { token: 6 });

  it('two holders are not excused where the topology must not lose a lock by the fault [G141]', () => {
    const both = [...first, fault('flush', 30), ...second];
    finds('overlapping holders', { bad: [both], terms: { losses: [] } });
    expect(checkHistory(both, TERMS)).toMatchObject({ violations: [], figures: { allowedOverlaps: 1 } });
  });

  it('two holders are not excused for longer than the lost lease ran [G140]', () => {
    const holdsOn = turn(0, 10, 900, { token: 5, ttlMs: 100, until: 1_000 });
    const next = (to: number) => turn(1, 50, to, { token: 6, ttlMs: 100, until: 500 });
    const flushed = fault('flush', 30);
    finds('overlapping holders', {
      bad: [[...holdsOn, flushed, ...next(400)]],
      good: [[...holdsOn, flushed, ...next(120)]],
    });
  });

  it('a lock that is passed on after the process itself took it away is found, from the time when the process knew [G146]', () => {
    const passed = turn(0, 101, 102, { token: 6, grant: { owner: 'x' } });
    const own = forced('0.0', 20, 30);
    finds('passed on after a loss', {
      bad: [
        [...had, own, ...passed],
        [...had, forced('0.0', 20), own, ...passed],
        [...had, fault('flush', 5), own, ...passed],
        [...had, fault('flush', 40), own, ...passed],
      ],
      good: [
        [...had, forced('0.0', 20, 102), ...passed],
        [...had, forced('0.0', 20), ...passed],
        [...had, forced('0.1', 20, 30), ...passed],
        [...had, { ...own, key: 'b' } as Entry, ...passed],
        [...had, own, ...turn(0, 101, 102, { token: 6, grant: { owner: 'y' } })],
        // It had lost the lock before, and took it from the next holder.
        [...had, fault('flush', 15), own, ...passed],
        [...had, forced('3.0', 15, 16), own, ...passed],
      ],
    });
  });

  it('a key that stays behind is found [G142]', () => {
    finds('lock left behind', { bad: [[{ at: 1, type: 'left-behind', node: 0, key: 'lock:{a}' }]] });
  });

  it('an acquire without an answer is found, unless its process was killed [G143]', () => {
    const asked = (more: object = {}): Entry => ({ at: 9, type: 'asked', worker: 3, key: 'a', turn: '3.0.0', ...more });
    const refused = (at: number): Entry => ({ at, type: 'refused', turn: '3.0.0', code: 'LOCK_CONTENDED' });
    const ofOwn = { worker: 3 };
    finds('operation without an end', {
      bad: [
        [asked()],
        [asked(), fault('kill-worker', 20, 30, { worker: 2 })],
        [asked(), fault('kill-worker', 5, 6, ofOwn)],
        [asked(), fault('stop-worker', 20, 30, ofOwn)],
        [{ at: 1, type: 'hung', worker: 0 }],
        // Or too late, although its process ran all the time.
        [asked(), refused(600)],
        [asked(), refused(600), fault('cut', 100, 250, ofOwn)],
        [asked(), refused(600), fault('stop-worker', 550, 900, ofOwn)],
        [asked({ calmly: true }), refused(1_100)],
        [asked({ calmly: true })],
      ],
      good: [
        [asked(), fault('kill-worker', 9, 30, ofOwn)],
        [asked(), refused(500)],
        [asked(), refused(600), fault('stop-worker', 100, 250, ofOwn)],
        [asked({ calmly: true }), refused(900)],
        [asked({ endlessly: true }), refused(60_000)],
      ],
    });
  });

  it('a worker that gets no lock after the nemesis, or gets it too late, is found [G144]', () => {
    const healed: Entry = { at: 100, type: 'healed', workers: [0, 1] };
    const calm = (worker: number, asked: number, from: number, more: TurnOf = {}) => turn(worker, from, from + 1, { key: CALM_KEY, asked, token: from, ...more }); // prettier-ignore
    const ofFirst = [healed, ...calm(0, 101, 110), ...calm(0, 115, 130)];
    finds('no lock after the nemesis', {
      bad: [
        ofFirst,
        [...ofFirst, ...calm(1, 700, 1_120)],
        [...ofFirst, ...calm(1, 111, 112)], // it was free
        [...ofFirst, ...calm(1, 105, 120, { key: 'b' })],
        [...ofFirst, ...calm(1, 105, 120, { hold: SHARED })],
      ],
      good: [[...ofFirst, ...calm(1, 105, 120)]],
      terms: { answerMs: Infinity },
    });
  });

  it('a lock that is free for too long after a server went back to old data, while a call waits, is found [G1050]', () => {
    const old = fault('restart-old', 90, 100);
    const next = (from: number, asked = 120) => turn(0, from, from + 5, { token: 6, asked });
    const terms = { regainMs: 400, answerMs: Infinity };
    const killed = [...next(501).slice(0, 1), fault('kill-worker', 700, 900, { worker: 0 })];
    const good = [[old, ...next(499)], [old, ...next(501, 450)], [fault('flush', 90, 100), ...next(501)], [old, ...turn(1, 50, 110, { token: 5 }), ...next(501)]]; // prettier-ignore
    finds('nobody inside after a server went back', {
      bad: [
        [old, ...next(501)],
        [old, ...killed],
      ],
      good,
      terms,
    });
  });

  it('an event loop that stood still is found between two beats, and between the last one and the end of its process [G147]', () => {
    const beats = (...times: number[]) => times.map((at): Entry => ({ at, type: 'beat', process: '3.1', worker: 3 }));
    const exited: Entry = { at: 900, type: 'exited', process: '3.1', worker: 3 };
    const next: Entry = { at: 5_000, type: 'beat', process: '3.2', worker: 3 };
    finds('event loop stood still', {
      bad: [
        beats(0, 100, 450),
        [...beats(0, 100), exited],
        [...beats(0, 500), fault('stop-worker', 50, 350, { worker: 2 })],
      ],
      good: [
        beats(0, 100, 350, 600),
        [...beats(0, 300, 600, 890), exited, next],
        [...beats(0, 500), fault('stop-worker', 50, 350, { worker: 3 })],
      ],
    });
  });
});
