import type { Backing } from './backing.js';
import type { Figures } from './demonstration.js';
import type { RushFigures } from './rush.js';

export function introduction({ kind, description, instances }: Backing): string {
  const count = kind !== 'memory' ? `${instances} instances of the shop, a process each` : 'one instance of the shop';
  return `${count}; locks kept in: ${description}.`;
}

/** The figures, for a person. */
export function reportOf(figures: Figures): string {
  return [rushReport(figures), nightReport(figures), crashReport(figures), pauseReport(figures), limits(figures)]
    .filter(Boolean)
    .join('\n\n');
}

function rushReport({ unlocked, locked, instances }: Figures): string {
  const rows: [label: string, value: (rush: RushFigures) => string][] = [
    ['buyers', ({ buyers }) => `${buyers}`],
    ['stock', ({ stock }) => `${stock}`],
    ['sold', ({ sold }) => `${sold}`],
    ['oversold', ({ oversold }) => (oversold > 0 ? `${oversold} !` : '0')],
    ['refused as sold out', ({ soldOut }) => `${soldOut}`],
    ['left by its books', ({ left }) => `${left}`],
    ['errors', ({ errors }) => `${errors}`],
    ['median wait', ({ medianWaitMs }) => `${medianWaitMs} ms`],
    ['longest wait', ({ longestWaitMs }) => `${longestWaitMs} ms`],
  ];
  const where = instances === 1 ? 'one instance' : `${instances} instances`;
  return [
    `1. A rush: ${unlocked.buyers} buyers at once, at ${where}, for ${unlocked.stock} boxes`,
    '',
    line('', 'without a lock', 'with @Locked'),
    ...rows.map(([label, value]) => line(label, value(unlocked), value(locked))),
  ].join('\n');
}

function line(label: string, ...values: string[]): string {
  // An exclamation mark stands right of the column.
  const cells = values.map((value) => (value.endsWith(' !') ? value : `${value}  `).padStart(19));
  return `   ${label.padEnd(20)}${cells.join('')}`.trimEnd();
}

function nightReport({ nights, instances }: Figures): string {
  const where = instances === 1 ? 'due three times at once on it' : `due on each of ${instances} instances at once`;
  return [
    `2. A nightly @Cron job, ${where}`,
    '',
    `   ${nights.nights} nights, due ${nights.ticks} times: ran ${nights.ran} times, skipped ${nights.skipped} times`,
  ].join('\n');
}

function crashReport({ crash, locks }: Figures): string {
  const { killed, successor, ttlMs, leaseLeftMs, replacedAfterMs } = crash;
  const succession =
    locks !== 'memory'
      ? `${successor} was waiting and had the lock ${replacedAfterMs} ms later.`
      : `${successor}, started in its place, had the lock after ${replacedAfterMs} ms.`;
  const lease =
    locks !== 'memory' ? `Of the ${ttlMs} ms of its lease ${leaseLeftMs} were left.` : 'The lock was gone with it.';
  return [
    '3. A holder is killed -9 while its write is on the way to the warehouse',
    '',
    `   ${killed} was killed. ${lease}`,
    `   ${succession}`,
    crash.lateWriteRefused
      ? '   The late write of the dead one came after that and was refused: its fencing token was the older one.'
      : '   The late write of the dead one came after that and was NOT refused.',
    `   Boxes in the warehouse: ${crash.boxes}, as they should be ${crash.boxesExpected}.`,
  ].join('\n');
}

function pauseReport({ crash: { pause } }: Figures): string {
  if (!pause) return '';
  return [
    '4. A holder stands still (SIGSTOP) for longer than its lease, its write on the way',
    '',
    `   ${pause.paused} stood still; ${pause.successor} had the lock meanwhile, and wrote.`,
    pause.lateWriteRefused
      ? '   The late write of the first was refused by its row in PostgreSQL, which had seen the newer token.'
      : '   The late write of the first was NOT refused.',
    `   When it went on, it answered ${pause.answeredStatus} to its own caller.`,
    `   Boxes in the warehouse: ${pause.boxes}, as they should be ${pause.boxesExpected}.`,
  ].join('\n');
}

function limits({ locks }: Figures): string {
  if (locks !== 'memory') return '';
  return [
    'What this run shows: with locks in memory the calls of one process exclude each other, with the same code.',
    'What it cannot show: several instances. Locks in memory exclude no other process, and die with their own.',
    'With a redis-server, or REDIS_URL set, the same run has three instances.',
  ].join('\n');
}
