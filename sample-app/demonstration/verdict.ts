import type { Figures } from './demonstration.js';
import type { PauseFigures } from './pause.js';
import type { RushFigures } from './rush.js';

type Expectation = [holds: boolean, problem: string];

/** On a busy machine, a process may wait for this long. */
const MARGIN_MS = 8_000;
/** Redis rounds the remaining time of a lease to milliseconds. */
const ROUNDING_MS = 5;

/** Returns a sentence for each figure that is not as expected. */
export function problemsOf({ locks, unlocked, locked, nights, crash }: Figures): string[] {
  const { ttlMs, leaseLeftMs, replacedAfterMs, boxes, boxesExpected } = crash;
  const expectations: Expectation[] = [
    ...answered('Without the lock', unlocked),
    [unlocked.oversold > 0, 'Without the lock nothing was oversold: the race that the lock prevents did not happen.'],
    ...answered('With @Locked', locked),
    [locked.sold === locked.stock, `With @Locked ${locked.sold} boxes were sold, but there were ${locked.stock}.`],
    [locked.left === 0, `With @Locked the warehouse still counts ${locked.left} boxes after all were sold.`],
    [
      nights.ran === nights.nights,
      `The nightly job ran ${nights.ran} times in ${nights.nights} nights, counted over all instances.`,
    ],
    [
      nights.skipped === nights.ticks - nights.nights,
      `The nightly job was due ${nights.ticks} times in ${nights.nights} nights and skipped ${nights.skipped} times.`,
    ],
    [
      replacedAfterMs <= ttlMs + MARGIN_MS,
      `The lock of the killed holder was taken over after ${replacedAfterMs} ms, although its ttl was ${ttlMs} ms.`,
    ],
    [
      locks === 'memory' || replacedAfterMs >= leaseLeftMs - ROUNDING_MS,
      `The lock of the killed holder was taken over after ${replacedAfterMs} ms, although its lease still had ${leaseLeftMs} ms left.`,
    ],
    [crash.lateWriteRefused, 'The late write of the killed holder was not refused.'],
    ...(crash.pause ? fenced(crash.pause) : []),
    [boxes === boxesExpected, `After the crash the warehouse counts ${boxes} boxes instead of ${boxesExpected}.`],
  ];
  return expectations.filter(([holds]) => !holds).map(([, problem]) => problem);
}

function fenced({ lateWriteRefused, answeredStatus, boxes, boxesExpected }: PauseFigures): Expectation[] {
  return [
    [lateWriteRefused, 'The late write of the paused holder was not refused.'],
    [
      answeredStatus === 503,
      `The paused holder answered ${answeredStatus} to its caller instead of 503, although its write was refused.`,
    ],
    [boxes === boxesExpected, `After the pause the warehouse counts ${boxes} boxes instead of ${boxesExpected}.`],
  ];
}

function answered(how: string, { errors, buyers, error }: RushFigures): Expectation[] {
  return [
    [errors === 0, `${how} ${errors} of ${buyers} buyers got an error, the first: ${error?.replace(/\.$/, '')}.`],
  ];
}
