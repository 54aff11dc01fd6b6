import { describe, expect, it } from 'vitest';
import { access, turnOf } from './a-history.js';
import { checkHistory, type Rule, type Terms } from './history-checker.js';
import type { Entry, FaultKind } from './history.js';

const TERMS: Terms = { losses: ['flush', 'restart-empty'], livenessMs: 1_000, answerMs: 500 };

function verdict(history: Entry[], terms: Partial<Terms> = {}) {
  return checkHistory(history, { ...TERMS, ...terms });
}

function rulesBroken(history: Entry[], terms: Partial<Terms> = {}): Rule[] {
  return verdict(history, terms).violations.map(({ rule }) => rule);
}

function fault(kind: FaultKind, at: number, until = at, whom: { worker?: number; node?: number } = {}): Entry {
  return { at, type: 'fault', kind, until, ...whom };
}

describe('a history that is right', () => {
  const history = [
    ...turnOf({ turn: '0.0.0', token: 5, from: 10, to: 20 }),
    access('read', 11, { token: 5, base: 0 }),
    access('write', 12, { token: 5, base: 0 }),
    ...turnOf({ turn: '1.0.0', worker: 1, token: 6, asked: 15, from: 21, to: 30 }),
    access('read', 22, { turn: '1.0.0', token: 6, base: 1 }),
    access('write', 23, { turn: '1.0.0', token: 6, base: 1 }),
  ];

  it('has no violation, in whatever order it was gathered, and is counted', () => {
    for (const order of [history, [...history].reverse()]) {
      const { violations, figures } = verdict(order);
      expect(violations).toEqual([]);
      expect(figures).toEqual({
        operations: 2,
        refusedAcquires: 0,
        faults: 0,
        acceptedWrites: 2,
        refusedAccesses: 0,
        allowedOverlaps: 0,
      });
    }
  });

  it('may have a late write that the resource refused', () => {
    const late = access('write', 40, { token: 5, base: 0, accepted: false });
    expect(verdict([...history, late])).toMatchObject({ violations: [], figures: { refusedAccesses: 1 } });
  });

  it('may have two holders of different keys', () => {
    const other = turnOf({ turn: '1.0.0', worker: 1, key: 'b', token: 1, from: 12, to: 15 });
    expect(rulesBroken([...turnOf({ turn: '0.0.0', token: 5, from: 10, to: 20 }), ...other])).toEqual([]);
  });

  it('may have a grant to each of two callers whose tokens are not in the order of their answers, when neither asked after the other', () => {
    const first = turnOf({ turn: '0.0.0', token: 6, asked: 1, from: 10, to: 11 });
    const second = turnOf({ turn: '1.0.0', worker: 1, token: 5, asked: 2, from: 12, to: 13 });
    expect(rulesBroken([...first, ...second])).toEqual([]);
  });

  it('may have a holder whose process was killed, or whose lease was over when it went on', () => {
    const killed = turnOf({ turn: '0.0.0', token: 5, from: 10 });
    const stopped = turnOf({ turn: '0.0.1', token: 6, from: 20, until: 120, to: 900 });
    const next = turnOf({ turn: '1.0.0', worker: 1, token: 7, from: 121, to: 130 });
    expect(rulesBroken([...killed, ...stopped, ...next])).toEqual([]);
  });
});

describe('a history with a lost update', () => {
  it('is found when a write adds to what was read before another write', () => {
    const history = [
      access('read', 1, { base: 0 }),
      access('read', 2, { turn: '1.0.0', base: 0 }),
      access('write', 3, { base: 0 }),
      access('write', 4, { turn: '1.0.0', base: 0 }),
    ];
    expect(rulesBroken(history)).toEqual(['lost update']);
  });

  it('is not told of other keys and of refused writes', () => {
    const history = [
      access('write', 1, { token: 1, base: 0 }),
      access('write', 2, { token: 1, base: 0, key: 'b' }),
      access('write', 3, { token: 0, base: 0, accepted: false }),
      access('write', 4, { token: 1, base: 1 }),
    ];
    expect(rulesBroken(history)).toEqual([]);
  });
});

describe('a history with tokens out of order', () => {
  it('is found when the resource accepts an older one after a newer one', () => {
    const history = [access('read', 1, { token: 2, base: 0 }), access('read', 2, { token: 1, base: 0 })];
    expect(rulesBroken(history)).toEqual(['token out of order at the resource']);
  });

  it('is found when a token is given twice', () => {
    const first = turnOf({ turn: '0.0.0', token: 5, asked: 1, from: 10, to: 11 });
    const second = turnOf({ turn: '1.0.0', worker: 1, token: 5, asked: 2, from: 12, to: 13 });
    expect(rulesBroken([...first, ...second])).toEqual(['token given twice']);
  });

  it('is found when who asks later gets a smaller one, however many came in between', () => {
    const first = turnOf({ turn: '0.0.0', token: 9, from: 10, to: 11 });
    const second = turnOf({ turn: '1.0.0', worker: 1, token: 5, asked: 5, from: 12, to: 13 });
    const third = turnOf({ turn: '2.0.0', worker: 2, token: 8, asked: 14, from: 15, to: 16 });
    expect(rulesBroken([...first, ...second, ...third])).toEqual(['token not above that of an earlier holder']);
  });
});

describe('a history with two holders', () => {
  const first = turnOf({ turn: '0.0.0', token: 5, from: 10, to: 100 });
  const second = turnOf({ turn: '1.0.0', worker: 1, token: 6, asked: 40, from: 50, to: 60 });

  it('is found, as often as there are two', () => {
    const third = turnOf({ turn: '2.0.0', worker: 2, token: 7, asked: 60, from: 70, to: 80 });
    expect(rulesBroken([...first, ...second])).toEqual(['overlapping holders']);
    expect(rulesBroken([...first, ...second, ...third])).toEqual(['overlapping holders', 'overlapping holders']);
  });

  it('is found within one process, too', () => {
    const own = turnOf({ turn: '0.0.1', token: 6, from: 50, to: 60 });
    expect(rulesBroken([...first, ...own])).toEqual(['overlapping holders']);
  });

  it('is found when the first holder looks after its deadline and still believes that it holds the lock', () => {
    const believer = turnOf({ turn: '0.0.0', token: 5, from: 10, until: 40 });
    const look: Entry = { at: 55, type: 'held', turn: '0.0.0', until: 40 };
    expect(rulesBroken([...believer, ...second])).toEqual([]);
    expect(rulesBroken([...believer, look, ...second])).toEqual(['overlapping holders']);
    const ended: Entry = { at: 58, type: 'ended', turn: '0.0.0', how: 'released' };
    expect(rulesBroken([...believer, look, ended, ...second])).toEqual(['overlapping holders']);
  });

  it('is found when an extension moved the deadline of the first holder', () => {
    const extended = turnOf({ turn: '0.0.0', token: 5, from: 10, until: 40, to: 100 });
    const look: Entry = { at: 30, type: 'held', turn: '0.0.0', until: 70 };
    expect(rulesBroken([...extended, look, ...second])).toEqual(['overlapping holders']);
  });

  it('is found with a holder whose lock knows no deadline, until it gives it back', () => {
    const asked = turnOf({ turn: '0.0.0', from: 10 }).slice(0, 1);
    const granted: Entry = { at: 10, type: 'granted', turn: '0.0.0', ttlMs: 20 };
    const ended: Entry = { at: 100, type: 'ended', turn: '0.0.0', how: 'released' };
    expect(rulesBroken([...asked, granted, ended, ...second])).toEqual(['overlapping holders']);
  });

  it.each(['flush', 'restart-empty'] as const)('is allowed after %s, and counted', (kind) => {
    const history = [...first, fault(kind, 30), ...second];
    expect(verdict(history)).toMatchObject({ violations: [], figures: { allowedOverlaps: 1 } });
  });

  it('is allowed when the lock was passed on within the process after the data was lost', () => {
    const passed = turnOf({ turn: '0.0.1', token: 6, from: 40, to: 70 });
    const own = [...turnOf({ turn: '0.0.0', token: 5, from: 10, to: 39 }), ...passed].map((entry) =>
      entry.type === 'granted' ? { ...entry, owner: 'x' } : entry,
    );
    const other = turnOf({ turn: '1.0.0', worker: 1, token: 7, asked: 40, from: 50, to: 60 });
    expect(rulesBroken([...own, fault('flush', 20), ...other])).toEqual([]);
  });

  it.each([
    ['before the first lease', fault('flush', 5)],
    ['after the second grant', fault('flush', 55)],
    ['of a kind that loses nothing', fault('stop-worker', 20, 45, { worker: 0 })],
  ])('is not excused by a fault %s', (_, between) => {
    expect(rulesBroken([...first, between, ...second])).toEqual(['overlapping holders']);
  });

  it('is not excused where the topology must not lose a lock by the fault', () => {
    expect(rulesBroken([...first, fault('flush', 30), ...second], { losses: [] })).toEqual(['overlapping holders']);
  });

  it('is not excused for longer than the lease ran that was lost', () => {
    const long = { ttlMs: 100, from: 10, until: 1_000, to: 900 };
    const holdsOn = turnOf({ turn: '0.0.0', token: 5, ...long });
    const next = turnOf({ turn: '1.0.0', worker: 1, token: 6, ttlMs: 100, asked: 40, from: 50, until: 500, to: 400 });
    expect(rulesBroken([...holdsOn, fault('flush', 30), ...next])).toEqual(['overlapping holders']);
  });
});

describe('a history with something left', () => {
  it('is found when a key stays behind', () => {
    expect(rulesBroken([{ at: 1, type: 'left-behind', node: 0, key: 'lock:{a}' }])).toEqual(['lock left behind']);
  });

  it('is found when a rejection is unhandled', () => {
    expect(rulesBroken([{ at: 1, type: 'unhandled', worker: 0, message: 'Error' }])).toEqual(['unhandled rejection']);
  });

  it('is found when an acquire has no answer, unless its process was killed', () => {
    const asked = turnOf({ turn: '3.0.0', worker: 3, from: 10 }).slice(0, 1);
    expect(rulesBroken(asked)).toEqual(['operation without an end']);
    for (const other of [
      fault('kill-worker', 20, 30, { worker: 2 }),
      fault('kill-worker', 5, 6, { worker: 3 }),
      fault('stop-worker', 20, 30, { worker: 3 }),
    ]) {
      expect(rulesBroken([...asked, other])).toEqual(['operation without an end']);
    }
    expect(rulesBroken([...asked, fault('kill-worker', 20, 30, { worker: 3 })])).toEqual([]);
  });

  it('is found when a process does not end', () => {
    expect(rulesBroken([{ at: 1, type: 'hung', worker: 0 }])).toEqual(['operation without an end']);
  });

  it('is found when an acquire is answered too late, where its process ran all the time', () => {
    const asked: Entry = { at: 0, type: 'asked', worker: 3, key: 'a', turn: '3.0.0' };
    const refused: Entry = { at: 600, type: 'refused', turn: '3.0.0', code: 'LOCK_CONTENDED' };
    expect(rulesBroken([asked, refused])).toEqual(['operation without an end']);
    expect(rulesBroken([asked, refused, fault('stop-worker', 100, 250, { worker: 3 })])).toEqual([]);
    expect(rulesBroken([asked, refused, fault('cut', 100, 250, { worker: 3, node: 0 })])).toEqual([
      'operation without an end',
    ]);
    expect(rulesBroken([asked, refused, fault('stop-worker', 550, 900, { worker: 3 })])).toEqual([
      'operation without an end',
    ]);
  });

  it('is found when a worker has no lock any more after the nemesis', () => {
    const healed: Entry = { at: 100, type: 'healed', workers: [0, 1] };
    const before = turnOf({ turn: '1.0.0', worker: 1, token: 1, from: 90, to: 91 });
    const after = turnOf({ turn: '0.0.0', token: 2, from: 200, to: 201 });
    const late = turnOf({ turn: '1.0.1', worker: 1, token: 3, from: 1_200, to: 1_201 });
    expect(verdict([healed, ...before, ...after, ...late]).violations).toEqual([
      { rule: 'no lock after the nemesis', text: 'worker 1 had none within 1000 ms' },
    ]);
  });
});
