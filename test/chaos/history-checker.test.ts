import { describe, expect, it } from 'vitest';
import { access, turnOf } from './a-history.js';
import { checkHistory, type Rule, type Terms } from './history-checker.js';
import { CALM_KEY, type Entry, type FaultKind } from './history.js';

const TERMS: Terms = { losses: ['flush', 'restart-empty'], livenessMs: 1_000, answerMs: 500, beatMs: 300 };

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
        guardedWrites: 0,
        refusedAccesses: 0,
        allowedOverlaps: 0,
        allowedTokens: 0,
        readers: 0,
        permits: 0,
        downgraded: 0,
        adopted: 0,
        overstayed: 0,
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
  it('a lost update is found when a write adds to what was read before another write [G137]', () => {
    const history = [
      access('read', 1, { base: 0 }),
      access('read', 2, { turn: '1.0.0', base: 0 }),
      access('write', 3, { base: 0 }),
      access('write', 4, { turn: '1.0.0', base: 0 }),
    ];
    expect(rulesBroken(history)).toEqual(['lost update']);
  });

  it('a lost update is found among the writes of transactions, which have no token and are counted [G740]', () => {
    const guarded = { key: 'a in the database', isGuarded: true } as const;
    const history: Entry[] = [
      { ...access('write', 1, { base: 0 }), ...guarded },
      { ...access('write', 2, { turn: '1.0.0', base: 0 }), ...guarded },
    ];
    const { violations, figures } = verdict(history);
    expect(violations.map(({ rule }) => rule)).toEqual(['lost update']);
    expect(figures.guardedWrites).toBe(2);
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
  it('tokens out of order are found when the resource accepts an older one after a newer one [G138]', () => {
    const history = [access('read', 1, { token: 2, base: 0 }), access('read', 2, { token: 1, base: 0 })];
    expect(rulesBroken(history)).toEqual(['token out of order at the resource']);
  });

  it('is found when a token is given twice', () => {
    const first = turnOf({ turn: '0.0.0', token: 5, asked: 1, from: 10, to: 11 });
    const second = turnOf({ turn: '1.0.0', worker: 1, token: 5, asked: 2, from: 12, to: 13 });
    expect(rulesBroken([...first, ...second])).toEqual(['token given twice']);
  });

  it('tokens out of order are found when a later call gets a smaller one, however many came in between [G139]', () => {
    const first = turnOf({ turn: '0.0.0', token: 9, from: 10, to: 11 });
    const second = turnOf({ turn: '1.0.0', worker: 1, token: 5, asked: 5, from: 12, to: 13 });
    const third = turnOf({ turn: '2.0.0', worker: 2, token: 8, asked: 14, from: 15, to: 16 });
    expect(rulesBroken([...first, ...second, ...third])).toEqual(['token not above that of an earlier holder']);
  });

  describe('of a lock that was lost and is passed on within a process', () => {
    const had = turnOf({ turn: '0.0.0', owner: 'x', token: 5, from: 10, to: 39 });
    const other = turnOf({ turn: '1.0.0', worker: 1, token: 9, from: 50, to: 60 });
    const passedAt = (from: number, owner = 'x') =>
      turnOf({ turn: '0.0.1', owner, token: 6, asked: 55, from, to: from + 1 });

    it('are allowed for a third of the ttl, and counted', () => {
      const history = [...had, fault('flush', 45), ...other, ...passedAt(370)];
      expect(verdict(history)).toMatchObject({ violations: [], figures: { allowedTokens: 1 } });
    });

    it('are allowed where another process took the lock away', () => {
      const forced: Entry = { at: 44, type: 'forced', process: '3.0', key: 'a', answered: 46, until: 47 };
      expect(rulesBroken([...had, forced, ...other, ...passedAt(370)])).toEqual([]);
      const elsewhere = { ...forced, key: 'b' };
      const behind = 'token not above that of an earlier holder';
      expect(rulesBroken([...had, elsewhere, ...other, ...passedAt(370)])).toEqual([behind]);
    });

    it.each([
      ['later than that', fault('flush', 45), passedAt(500)],
      ['what Redis granted after the loss', fault('flush', 45), passedAt(370, 'y')],
      ['a loss before it was had', fault('flush', 5), passedAt(370)],
      ['a loss after the other was granted', fault('flush', 56), passedAt(370)],
      ['a fault that loses nothing', fault('forget-scripts', 45), passedAt(370)],
    ])('are not allowed: %s', (_, loss, passed) => {
      const late = passed.map((entry) =>
        entry.type === 'granted' && entry.owner === 'y' ? { ...entry, sentAt: 56 } : entry,
      );
      expect(rulesBroken([...had, loss, ...other, ...late])).toEqual(['token not above that of an earlier holder']);
    });
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

  it('is allowed when the second lease may have begun first, whichever of the two the fault has cost', () => {
    const waited = (ttlMs: number) =>
      turnOf({ turn: '1.0.0', worker: 1, token: 6, ttlMs, asked: 5, from: 50, to: 60 }).map((entry) =>
        entry.type === 'granted' ? { ...entry, sentAt: undefined } : entry,
      );
    expect(rulesBroken([...first, fault('flush', 30), ...waited(20)])).toEqual([]);
    expect(rulesBroken([...first, fault('flush', 7), ...waited(20)])).toEqual(['overlapping holders']);
    expect(rulesBroken([...first, fault('flush', 7), ...waited(100)])).toEqual([]);
  });

  it('two holders are not excused where the topology must not lose a lock by the fault [G141]', () => {
    expect(rulesBroken([...first, fault('flush', 30), ...second], { losses: [] })).toEqual(['overlapping holders']);
  });

  it('two holders are not excused for longer than the lost lease ran [G140]', () => {
    const long = { ttlMs: 100, from: 10, until: 1_000, to: 900 };
    const holdsOn = turnOf({ turn: '0.0.0', token: 5, ...long });
    const next = turnOf({ turn: '1.0.0', worker: 1, token: 6, ttlMs: 100, asked: 40, from: 50, until: 500, to: 400 });
    expect(rulesBroken([...holdsOn, fault('flush', 30), ...next])).toEqual(['overlapping holders']);
  });
});

describe('a history with locks that several hold', () => {
  const reader = (worker: number, token: number, from: number, to = from + 50, asked = from - 1) =>
    turnOf({ turn: `${worker}.0.${from}`, worker, token, asked, from, to, hold: { mode: 'shared' } });
  const writer = (token: number, from: number, to = from + 10) =>
    turnOf({ turn: `9.0.${from}`, worker: 9, token, from, to });
  const permits = (worker: number, count: number, from: number, limit = 5, to = from + 50) =>
    turnOf({
      turn: `${worker}.0.${from}`,
      worker,
      from,
      to,
      hold: { mode: 'permits', permits: count, limit },
    });

  it('may have readers beside each other, with one token in each phase, and writers between the phases', () => {
    const history = [
      ...writer(4, 1, 5),
      ...reader(0, 5, 10),
      ...reader(1, 5, 20),
      ...writer(6, 80),
      ...reader(0, 7, 100),
    ];
    expect(verdict(history)).toMatchObject({ violations: [], figures: { allowedOverlaps: 0 } });
  });

  it('may have permits beside each other, up to the smallest limit', () => {
    expect(rulesBroken([...permits(0, 2, 10), ...permits(1, 3, 20), ...permits(2, 5, 75)])).toEqual([]);
    expect(rulesBroken([...permits(0, 2, 10), ...permits(1, 1, 20, 3), ...permits(2, 3, 75, 3)])).toEqual([]);
  });

  it.each([
    ['a writer beside a reader', reader(0, 5, 10), writer(6, 20)],
    ['a reader beside a writer', writer(5, 10), reader(0, 6, 15)],
    ['a writer beside permits', permits(0, 1, 10), writer(6, 20)],
    ['permits beside a reader', reader(0, 5, 10), permits(1, 1, 20)],
  ])('%s is found, and excused by a loss in between', (_, first, second) => {
    const lost = fault('flush', 12);
    expect(rulesBroken([...first, ...second])).toEqual(['overlapping holders']);
    expect(verdict([...first, lost, ...second])).toMatchObject({ violations: [], figures: { allowedOverlaps: 1 } });
  });

  it('readers beside each other with two tokens are found, and excused by a loss in between', () => {
    const [first, second] = [reader(0, 5, 10), reader(1, 6, 20)];
    expect(rulesBroken([...first, ...second])).toEqual(['two tokens among readers']);
    expect(rulesBroken([...first, fault('flush', 15), ...second])).toEqual([]);
  });

  it('more permits than a limit are found, whoever names it, and excused by a loss of so many that the rest is within it', () => {
    const tooMany = ['more permits than the limit'];
    expect(rulesBroken([...permits(0, 3, 10), ...permits(1, 3, 20)])).toEqual(tooMany);
    expect(rulesBroken([...permits(0, 3, 10), ...permits(1, 1, 20, 3)])).toEqual(tooMany);
    expect(rulesBroken([...permits(0, 3, 10, 3), ...permits(1, 1, 20)])).toEqual(tooMany);
    const lost = [...permits(0, 3, 10), fault('flush', 15), ...permits(1, 3, 20)];
    expect(verdict(lost)).toMatchObject({ violations: [], figures: { allowedOverlaps: 1 } });
    expect(rulesBroken([...lost, ...permits(2, 3, 30)])).toEqual(tooMany);
  });

  it('a reader that asked after a writer had the lock, and has its token or that of an earlier phase, is found', () => {
    expect(rulesBroken([...writer(5, 10), ...reader(0, 5, 30)])).toContain('token given twice');
    const late = [...reader(0, 5, 1, 5), ...writer(6, 10), ...reader(1, 5, 30)];
    expect(rulesBroken(late)).toEqual(['token not above that of an earlier holder']);
  });

  it.each([
    ['brings back', 'restart-old', []],
    ['does not bring back', 'restart-empty', ['token not above that of an earlier holder']],
  ] as const)('a reader may have the token of an earlier phase that %s its readers: %s', (_, kind, broken) => {
    const phases = [...reader(0, 5, 1, 5), ...writer(6, 10)];
    const losses = ['restart-old', 'restart-empty'] as const;
    expect(rulesBroken([...phases, fault(kind, 25), ...reader(1, 5, 30)], { losses })).toEqual(broken);
    expect(rulesBroken([...phases, fault(kind, 25), ...reader(1, 4, 30)], { losses })).toEqual([
      'token not above that of an earlier holder',
    ]);
  });

  describe('readers who are back with old data', () => {
    const broken = ['token not above that of an earlier holder'];
    const losses = ['restart-old'] as const;
    const phases = [...reader(0, 5, 10, 15, 1), ...writer(6, 20)];
    const goesBack = (at: number, tokens?: readonly number[], tickets: readonly string[] = []): Entry => ({
      at,
      type: 'fault',
      kind: 'restart-old',
      until: 30,
      revived: tokens && { tokens, tickets },
    });

    it('are known by the tokens that were found in it, whether anybody had one of them', () => {
      expect(rulesBroken([...writer(6, 20), goesBack(25, [4, 5]), ...reader(1, 5, 40)], { losses })).toEqual([]);
      expect(rulesBroken([...phases, goesBack(25, [4]), ...reader(1, 5, 40)], { losses })).toEqual(broken);
      expect(rulesBroken([...phases, goesBack(25, [5]), ...writer(5, 40)], { losses })).toContain(broken[0]);
    });

    it('may have another token than one who waits in it, and was granted the lock in the meantime', () => {
      const again = (from: number) =>
        turnOf({ turn: '0.0.0', token: 7, owner: 'x', from, until: 500, to: 400, ttlMs: 20, hold: { mode: 'shared' } });
      const two = [...again(28), ...reader(1, 8, 300)];
      expect(rulesBroken([...two, goesBack(25, [], ['x'])], { losses })).toEqual([]);
      expect(rulesBroken([...two, goesBack(25, [], ['y'])], { losses })).toEqual(['two tokens among readers']);
      expect(rulesBroken([...again(35), ...reader(1, 8, 300), goesBack(25, [], ['x'])], { losses })).toEqual([
        'two tokens among readers',
      ]);
      const writes = [...again(28), ...writer(8, 300)];
      expect(rulesBroken([...writes, goesBack(25, [], ['x'])], { losses })).toEqual(['overlapping holders']);
      const late = { ttlMs: 20, asked: 320, from: 330, until: 500, to: 340 };
      const passed = turnOf({ turn: '0.0.1', token: 7, owner: 'x', ...late, hold: { mode: 'shared' } });
      const passedOn = [
        ...two,
        ...passed.map((entry) => (entry.type === 'granted' ? { ...entry, sentAt: 28 } : entry)),
      ];
      expect(rulesBroken([...passedOn, goesBack(25, [], ['x'])], { losses })).toEqual([]);
      expect(rulesBroken([...passedOn, goesBack(25, [])], { losses })).toContain(broken[0]);
    });

    it('may have asked before and learned of their grant later, where nobody looked into it', () => {
      expect(rulesBroken([...phases, goesBack(5), ...reader(1, 5, 40)], { losses })).toEqual([]);
      expect(rulesBroken([...phases, goesBack(0.5), ...reader(1, 5, 40)], { losses })).toEqual(broken);
    });
  });

  it('a reader without a token is found', () => {
    const without = turnOf({ turn: '0.0.0', from: 10, to: 20, hold: { mode: 'shared' } });
    expect(rulesBroken(without)).toEqual(['reader without a token']);
    expect(rulesBroken(permits(0, 1, 10))).toEqual([]);
  });

  it('a turn that held its lock for longer than its maxHoldMs is found, but for the drift of clocks', () => {
    const turn = { turn: '0.0.0', from: 10, maxHoldMs: 200 };
    expect(rulesBroken(turnOf({ ...turn, to: 212 }), { slackMs: 0 })).toEqual([]);
    expect(rulesBroken(turnOf({ ...turn, to: 213 }), { slackMs: 0 })).toEqual(['held for too long']);
    expect(rulesBroken(turnOf({ ...turn, until: 210, to: 300 }), { slackMs: 0 })).toEqual([]);
  });

  describe('a lock that is downgraded', () => {
    const downgraded = turnOf({
      turn: '9.0.2',
      worker: 9,
      token: 8,
      asked: 20,
      from: 40,
      to: 60,
      hold: { mode: 'shared' },
    });
    const history = [
      ...writer(5, 10, 20),
      ...downgraded.map((entry) => (entry.type === 'granted' ? { ...entry, came: 'downgraded' as const } : entry)),
    ];

    it('may have readers beside it from when it is called, and is counted', () => {
      const { violations, figures } = verdict([...history, ...reader(0, 8, 30)]);
      expect(violations).toEqual([]);
      expect(figures).toMatchObject({ downgraded: 1, readers: 1 });
    });

    it.each([
      ['writer', writer(6, 25, 35)],
      ['holder of permits', permits(0, 1, 25, 5, 35)],
    ])('has no %s in between', (_, between) => {
      expect(rulesBroken([...history, ...between])).toContain('overlapping holders');
    });
  });

  it('a reader does not count as a worker that is served after the nemesis', () => {
    const healed: Entry = { at: 100, type: 'healed', workers: [0] };
    const other = turnOf({ turn: '1.0.0', key: CALM_KEY, worker: 1, token: 1, asked: 101, from: 110, to: 115 });
    const served = { turn: '0.0.0', key: CALM_KEY, token: 2, asked: 105, from: 120, to: 125 };
    expect(rulesBroken([healed, ...other, ...turnOf(served)])).toEqual([]);
    expect(rulesBroken([healed, ...other, ...turnOf({ ...served, hold: { mode: 'shared' } })])).toEqual([
      'no lock after the nemesis',
    ]);
  });
});

describe('a history with a lock that is passed on after it was lost', () => {
  const had = turnOf({ turn: '0.0.0', owner: 'x', token: 5, from: 10, to: 100 });
  const passed = (from: number, turn = '0.0.1', owner = 'x') => turnOf({ turn, owner, token: 6, from, to: from + 1 });
  const flushed: Entry = { at: 20, type: 'fault', kind: 'flush', until: 30, forgets: true };
  const forced: Entry = { at: 20, type: 'forced', process: '0.0', key: 'a', answered: 30, until: 30 };

  it('a lock that is passed on after the process took it away itself is found, from when the process knew [G146]', () => {
    expect(rulesBroken([...had, forced, ...passed(101)])).toEqual(['passed on after a loss']);
    expect(rulesBroken([...had, { ...forced, answered: 102 }, ...passed(101)])).toEqual([]);
    expect(rulesBroken([...had, { ...forced, answered: undefined }, ...passed(101)])).toEqual([]);
    expect(rulesBroken([...had, { ...forced, process: '0.1' }, ...passed(101)])).toEqual([]);
    expect(rulesBroken([...had, { ...forced, key: 'b' }, ...passed(101)])).toEqual([]);
  });

  it('is told from what is known of a forced release at last: an answer, or nothing where its process was killed', () => {
    const asked: Entry = { ...forced, answered: undefined, until: 8_020 };
    const byOther = { ...asked, process: '3.0' };
    expect(rulesBroken([...had, asked, ...passed(101)])).toEqual([]);
    expect(rulesBroken([...had, asked, forced, ...passed(101)])).toEqual(['passed on after a loss']);
    expect(rulesBroken([...had, byOther, forced, ...passed(101)])).toEqual([]);
    const before: Entry = { ...byOther, at: 5 };
    const answered: Entry = { ...before, answered: 7, until: 8 };
    expect(rulesBroken([...had, before, forced, ...passed(101)])).toEqual([]);
    expect(rulesBroken([...had, before, answered, forced, ...passed(101)])).toEqual(['passed on after a loss']);
  });

  it('is found when it must have been found lost', () => {
    expect(rulesBroken([...had, flushed, ...passed(350)])).toEqual([]);
    expect(rulesBroken([...had, flushed, ...passed(600)])).toEqual(['passed on after a loss']);
    expect(rulesBroken([...had, { ...flushed, forgets: false }, ...passed(600)])).toEqual([]);
    expect(rulesBroken([...had, flushed, ...passed(600)], { losses: [] })).toEqual([]);
  });

  it('is not found so soon after a restart, which cost the process its connection, too', () => {
    const restarted: Entry = { ...flushed, kind: 'restart-empty' };
    expect(rulesBroken([...had, restarted, ...passed(1_030)])).toEqual([]);
    expect(rulesBroken([...had, restarted, ...passed(1_200)])).toEqual(['passed on after a loss']);
  });

  describe('by a process that took it away from the next holder', () => {
    const lost = fault('flush', 15);
    const byOther: Entry = { at: 15, type: 'forced', process: '3.0', key: 'a', answered: 16, until: 3_016 };

    it('is allowed, since it had lost it before, and did not know', () => {
      expect(rulesBroken([...had, lost, forced, ...passed(101)])).toEqual([]);
      expect(rulesBroken([...had, byOther, forced, ...passed(101)])).toEqual([]);
    });

    it('is allowed where the data was lost when the grant was on its way', () => {
      expect(rulesBroken([...had, fault('flush', 9.8), forced, ...passed(101)])).toEqual([]);
    });

    it.each([
      ['before it had the lock', fault('flush', 5), 101],
      ['after it took the lock away', fault('flush', 40), 101],
      ['of which it must have learned since', lost, 600],
      ['by another process, of which it must have learned since', byOther, 600],
      ['of another key', { ...byOther, key: 'b' }, 101],
      ['by itself', { ...byOther, process: '0.0', answered: undefined }, 101],
    ] as const)('is found after a loss %s', (_, loss, from) => {
      expect(rulesBroken([...had, loss, forced, ...passed(from)])).toEqual(['passed on after a loss']);
    });
  });

  it('is not what was granted anew', () => {
    expect(rulesBroken([...had, forced, flushed, ...passed(600, '0.0.1', 'y')])).toEqual([]);
    const handedOver = passed(600, '0.0.1', 'y').map((entry) =>
      entry.type === 'granted' ? { ...entry, sentAt: 11 } : entry,
    );
    expect(rulesBroken([...had, forced, flushed, ...handedOver])).toEqual([]);
  });
});

describe('a history with something left', () => {
  it('a key that stays behind is found [G142]', () => {
    expect(rulesBroken([{ at: 1, type: 'left-behind', node: 0, key: 'lock:{a}' }])).toEqual(['lock left behind']);
  });

  it('is found when a rejection is unhandled', () => {
    expect(rulesBroken([{ at: 1, type: 'unhandled', worker: 0, message: 'Error' }])).toEqual(['unhandled rejection']);
  });

  it('an acquire without an answer is found, unless its process was killed [G143]', () => {
    const asked = turnOf({ turn: '3.0.0', worker: 3, from: 10 }).slice(0, 1);
    expect(rulesBroken(asked)).toEqual(['operation without an end']);
    for (const other of [
      fault('kill-worker', 20, 30, { worker: 2 }),
      fault('kill-worker', 5, 6, { worker: 3 }),
      fault('stop-worker', 20, 30, { worker: 3 }),
    ]) {
      expect(rulesBroken([...asked, other])).toEqual(['operation without an end']);
    }
    for (const killedFrom of [9, 20]) {
      expect(rulesBroken([...asked, fault('kill-worker', killedFrom, 30, { worker: 3 })])).toEqual([]);
    }
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

  it('a campaign may be answered late: it waits for as long as another one leads', () => {
    const asked: Entry = { at: 0, type: 'asked', worker: 3, key: 'a', turn: '3.0.0', endlessly: true };
    const [, ...granted] = turnOf({ turn: '3.0.0', worker: 3, from: 60_000, to: 60_001 });
    expect(rulesBroken([asked, ...granted])).toEqual([]);
  });

  it('a call that waits until it is served may take as long as a worker after the nemesis, and no longer', () => {
    const asked: Entry = { at: 0, type: 'asked', worker: 3, key: 'a', turn: '3.0.0', calmly: true };
    const servedAt = (from: number) => turnOf({ turn: '3.0.0', worker: 3, from, to: from + 1 }).slice(1);
    expect(rulesBroken([asked, ...servedAt(900)])).toEqual([]);
    expect(rulesBroken([asked, ...servedAt(1_100)])).toEqual(['operation without an end']);
    expect(rulesBroken([asked])).toEqual(['operation without an end']);
  });

  describe('a worker that was not served after the nemesis', () => {
    const healed: Entry = { at: 100, type: 'healed', workers: [0, 1] };
    const calm = (worker: number, number: number, asked: number, from: number) =>
      turnOf({ turn: `${worker}.0.${number}`, key: CALM_KEY, worker, token: from, asked, from, to: from + 1 });
    const lifeless = (...workers: number[]) =>
      workers.map((worker) => ({
        rule: 'no lock after the nemesis',
        text: `worker ${worker} waited for one in vain for 1000 ms`,
      }));

    it('is none that was served after it had waited', () => {
      const history = [healed, ...calm(0, 0, 101, 110), ...calm(1, 0, 105, 120), ...calm(0, 1, 115, 130)];
      expect(verdict(history).violations).toEqual([]);
    });

    it('a worker that gets no lock after the nemesis, or gets it too late, is found [G144]', () => {
      const history = [healed, ...calm(0, 0, 101, 110), ...calm(1, 0, 700, 1_120), ...calm(0, 1, 115, 130)];
      expect(verdict(history).violations).toEqual(lifeless(0, 1));
    });

    it('is found when it only had locks that were free, or others than all want', () => {
      const free = [...calm(0, 0, 101, 110), ...calm(1, 0, 115, 120), ...calm(0, 1, 116, 130)];
      const other = turnOf({ turn: '1.0.1', worker: 1, token: 140, asked: 101, from: 140, to: 141 });
      expect(verdict([healed, ...free, ...other]).violations).toEqual(lifeless(1));
    });
  });

  it('a lock that nobody holds for too long after a server went back to old data, though a call waits, is found [G1050]', () => {
    const terms = { losses: ['restart-old'], regainMs: 400, answerMs: Infinity } as const;
    const old = fault('restart-old', 90, 100);
    const next = (from: number) => turnOf({ turn: '0.0.1', token: 6, asked: 120, from, to: from + 5 });
    const nobodyInside = ['nobody inside after a server went back'];
    expect(rulesBroken([old, ...next(501)], terms)).toEqual(nobodyInside);
    expect(rulesBroken([old, ...next(499)], terms)).toEqual([]);
    expect(rulesBroken([old, ...next(501)], { ...terms, regainMs: undefined })).toEqual([]);
    const killed = [...next(501).slice(0, 1), fault('kill-worker', 700, 900, { worker: 0 })];
    expect(rulesBroken([old, ...killed], terms)).toEqual(nobodyInside);
    expect(rulesBroken([old, ...killed], { ...terms, regainMs: undefined })).toEqual([]);
    expect(rulesBroken([fault('flush', 90, 100), ...next(501)], { ...terms, losses: ['flush'] })).toEqual([]);
    const before = turnOf({ turn: '0.0.0', token: 5, from: 50, to: 110 });
    expect(rulesBroken([old, ...before, ...next(501)], terms)).toEqual([]);
    const late = turnOf({ turn: '0.0.1', token: 6, asked: 450, from: 501, to: 505 });
    expect(rulesBroken([old, ...late], terms)).toEqual([]);
  });

  describe('an event loop that stood still', () => {
    const beats = (...times: number[]): Entry[] => times.map((at) => ({ at, type: 'beat', process: '3.1', worker: 3 }));
    const exited: Entry = { at: 900, type: 'exited', process: '3.1', worker: 3 };
    const stoodStill = ['event loop stood still'];

    it('an event loop that stood still is found between two beats, and between the last one and the end of its process [G147]', () => {
      expect(rulesBroken(beats(0, 100, 350, 600))).toEqual([]);
      expect(rulesBroken(beats(0, 100, 450))).toEqual(stoodStill);
      expect(rulesBroken([...beats(0, 100), exited])).toEqual(stoodStill);
      expect(rulesBroken([...beats(0, 300, 600, 890), exited])).toEqual([]);
    });

    it('is none while the process was stopped', () => {
      expect(rulesBroken([...beats(0, 500), fault('stop-worker', 50, 350, { worker: 3 })])).toEqual([]);
      expect(rulesBroken([...beats(0, 500), fault('stop-worker', 50, 350, { worker: 2 })])).toEqual(stoodStill);
      expect(rulesBroken([...beats(0, 500), fault('stop-node', 50, 350, { node: 0 })])).toEqual(stoodStill);
    });

    it('is none between two processes of a worker', () => {
      const next: Entry = { at: 5_000, type: 'beat', process: '3.2', worker: 3 };
      expect(rulesBroken([...beats(0, 300, 600, 890), exited, next])).toEqual([]);
    });
  });
});
