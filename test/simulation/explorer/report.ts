import { inspect } from 'node:util';
import { MARKS, type Mark, type Marks } from './marks.js';
import { describeFault, kindsOf, type Plan } from './plan.js';
import type { Result } from './simulate.js';

/** How many lines of the trace are printed. */
export const LAST_LINES = 40;
const LONGEST_LINE = 300;

/** The contents of a plan, in one line. */
export function headOf(plan: Plan): string {
  const { seed, topology, seconds, processes, keys, parallel, commandTimeoutMs, features, mutant } = plan;
  const of = mutant === undefined ? '' : `, mutant ${mutant}`;
  return (
    `seed ${seed}, ${topology}, ${seconds} s, ${processes} processes, ${keys} keys, ${parallel} calls each, ` +
    `commandTimeoutMs ${commandTimeoutMs}; ` +
    `does: ${features.join(' ') || 'nothing more'}; faults: ${kindsOf(plan).join(' ') || 'none'}${of}`
  );
}

/**
 * All that is known about a plan that failed.
 * @param trace its last lines
 */
export function failureOf({ plan, hash, violations }: Result, trace: readonly string[]): string {
  return [
    `FAILED ${headOf(plan)}`,
    ...violations.slice(0, 10).map(({ rule, text }) => `  ${rule}: ${text}`),
    ...(violations.length > 10 ? [`  and ${violations.length - 10} more`] : []),
    `  hash ${hash}; faults:`,
    ...plan.faults.map((fault) => `    ${describeFault(fault)}`),
    `  the last ${LAST_LINES} lines of its trace:`,
    ...trace.slice(-LAST_LINES).map((line) => `    ${lineOf(line)}`),
    `  again: npm run simulate -- --seed ${plan.seed} --topology ${plan.topology}; less of it: --shrink; all of it: --trace`,
  ].join('\n');
}

/** One line of a trace, as it is printed. */
export function lineOf(line: string): string {
  return line.slice(0, LONGEST_LINE).replaceAll('\r\n', '\\r\\n').trimEnd();
}

/** A plan, as a test contains it. */
export function testOf(plan: Plan): string {
  const text = inspect(plan, { depth: null, breakLength: 120, compact: 3, sorted: false });
  return `expect((await simulate(${text}, copies)).violations).toEqual([]);`;
}

/** How often each state was reached. */
export function tableOf(marks: Marks): string {
  return (Object.keys(MARKS) as Mark[]).map((mark) => `${mark} ${marks.get(mark) ?? 0}`).join(', ');
}
