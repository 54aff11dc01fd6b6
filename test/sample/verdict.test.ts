import { expect, it } from 'vitest';
import type { Figures } from '../../sample-app/demonstration/demonstration.js';
import { problemsOf } from '../../sample-app/demonstration/verdict.js';

const RUSH = { buyers: 120, stock: 50, soldOut: 70, errors: 0, medianWaitMs: 300, longestWaitMs: 900 };

const GOOD: Figures = {
  locks: 'redis',
  instances: 3,
  unlocked: { ...RUSH, sold: 118, oversold: 68, soldOut: 2, left: 41 },
  locked: { ...RUSH, sold: 50, oversold: 0, left: 0 },
  nights: { nights: 3, ticks: 9, ran: 3, skipped: 6 },
  crash: {
    killed: 'shop 1',
    successor: 'shop 2',
    ttlMs: 2_000,
    leaseLeftMs: 1_900,
    replacedAfterMs: 1_910,
    lateWriteRefused: true,
    boxes: 21,
    boxesExpected: 21,
    pause: {
      paused: 'shop 3',
      successor: 'shop 2',
      lateWriteRefused: true,
      answeredStatus: 503,
      boxes: 17,
      boxesExpected: 17,
    },
  },
};
const paused = (change: Partial<typeof GOOD.crash.pause>) => ({
  crash: { ...GOOD.crash, pause: { ...GOOD.crash.pause!, ...change } },
});

it('finds no problem in figures that hold', () => {
  expect(problemsOf(GOOD)).toEqual([]);
});

it.each<[what: string, change: Partial<Figures>, problem: string]>([
  ['nothing was oversold without the lock', { unlocked: { ...GOOD.unlocked, oversold: 0 } }, 'did not show'],
  ['a box was oversold', { locked: { ...GOOD.locked, sold: 51, oversold: 1 } }, '51 boxes were sold, and 50'],
  ['a box was not sold', { locked: { ...GOOD.locked, sold: 49 } }, '49 boxes were sold, and 50'],
  ['a sale was lost', { locked: { ...GOOD.locked, left: 1 } }, 'still counts 1'],
  ['a buyer got an error', { locked: { ...GOOD.locked, errors: 1, error: 'shop 1 answered 409' } }, '409'],
  ['the nightly job ran twice in a night', { nights: { ...GOOD.nights, ran: 4 } }, 'ran 4 times in 3 nights'],
  ['the nightly job was not skipped', { nights: { ...GOOD.nights, skipped: 5 } }, 'skipped 5 times'],
  ['the dead holder was replaced late', { crash: { ...GOOD.crash, replacedAfterMs: 10_001 } }, 'after 10001 ms'],
  ['a live lease was taken over', { crash: { ...GOOD.crash, replacedAfterMs: 1_800 } }, 'still ran for 1900 ms'],
  ['a late write was accepted', { crash: { ...GOOD.crash, lateWriteRefused: false } }, 'was not refused'],
  ['a paused holder was accepted', paused({ lateWriteRefused: false }), 'paused holder was not refused'],
  ['a paused holder answered as if it held its lock', paused({ answeredStatus: 201 }), 'answered 201 to its caller'],
  ['a paused holder overwrote a delivery', paused({ boxes: 15 }), '15 boxes instead of 17'],
  ['a delivery was overwritten', { crash: { ...GOOD.crash, boxes: 15 } }, '15 boxes instead of 21'],
])('finds a problem when %s', (_what, change, problem) => {
  expect(problemsOf({ ...GOOD, ...change })).toEqual([expect.stringContaining(problem)]);
});
