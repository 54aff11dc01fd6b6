import type { Backing } from './backing.js';
import type { Figures } from './demonstration.js';
import type { RushFigures } from './rush.js';

export function introduction({ kind, description, instances }: Backing): string {
  const count = kind !== 'memory' ? `${instances} instances of the shop, one process each` : 'one instance of the shop';
  return `${count}; locks kept in: ${description}.`;
}

/** The figures as text. */
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
  // An exclamation mark goes to the right of the column.
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
      ? `${successor} was waiting and got the lock ${replacedAfterMs} ms later.`
      : `${successor}, started in its place, got the lock after ${replacedAfterMs} ms.`;
  const lease =
    locks !== 'memory' ? `${leaseLeftMs} of the ${ttlMs} ms of its lease were left.` : 'The lock was lost with it.';
  return [
    '3. A holder is killed -9 while its write is on the way to the warehouse',
    '',
    `   ${killed} was killed. ${lease}`,
    `   ${succession}`,
    crash.lateWriteRefused
      ? '   The late write of the killed holder came after that and was refused: its fencing token was too old.'
      : '   The late write of the killed holder came after that and was NOT refused.',
    `   Boxes in the warehouse: ${crash.boxes}, expected: ${crash.boxesExpected}.`,
  ].join('\n');
}

function pauseReport({ crash: { pause } }: Figures): string {
  if (!pause) return '';
  return [
    '4. A holder is paused (SIGSTOP) for longer than its lease while its write is on the way to the warehouse',
    '',
    `   ${pause.paused} was paused; ${pause.successor} got the lock meanwhile, and wrote.`,
    pause.lateWriteRefused
      ? '   The late write of the paused holder was refused: its row in PostgreSQL had seen the newer token.'
      : '   The late write of the paused holder was NOT refused.',
    `   When it resumed, it answered ${pause.answeredStatus} to its own caller, and logged:`,
    `   ${pause.logged}`,
    `   Boxes in the warehouse: ${pause.boxes}, expected: ${pause.boxesExpected}.`,
  ].join('\n');
}

function limits({ locks }: Figures): string {
  if (locks !== 'memory') return '';
  return [
    'What this run shows: with locks in memory, the calls of one process exclude each other. The code is the same.',
    'What it cannot show: several instances. Locks in memory do not exclude other processes, and are lost when their process ends.',
    'With a redis-server, or with REDIS_URL set, the same run has three instances.',
  ].join('\n');
}
