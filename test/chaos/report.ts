import type { CellResult } from './cell.js';
import { RULES, type Rule } from './history-checker.js';

export interface Row {
  topology: string;
  result: CellResult;
}

const COLUMNS: readonly (readonly [title: string, value: (rows: readonly Row[]) => number])[] = [
  ['operations', sum((result) => result.figures.operations)],
  ['faults', sum((result) => result.figures.faults)],
  ['guarded writes', sum((result) => result.figures.guardedWrites)],
  ['lost updates', broken('lost update')],
  ['tokens out of order', broken('token out of order at the resource', 'token given twice', 'token not above that of an earlier holder')],
  ['two holders', broken('overlapping holders', 'passed on after a loss')],
  ['two holders, excused', sum((result) => result.figures.allowedOverlaps)],
  ['tokens out of order, excused', sum((result) => result.figures.allowedTokens)],
  ['writes refused', sum((result) => result.figures.refusedAccesses)],
  ['locks left behind', broken('lock left behind')],
  ['hung', broken('operation without an end', 'no lock after the nemesis', 'event loop stood still')],
  ['failed acquires', sum((result) => result.figures.refusedAcquires)],
  ['unhandled rejections', broken('unhandled rejection')],
]; // prettier-ignore

/** A Markdown table: one line for each topology, the runs of several seeds added up. */
export function tableOf(rows: readonly Row[]): string {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    groups.set(row.topology, [...(groups.get(row.topology) ?? []), row]);
  }
  const head = ['topology', ...COLUMNS.map(([title]) => title)];
  const lines = [...groups].map(([name, group]) => [name, ...COLUMNS.map(([, value]) => value(group))]);
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** How many of each kind, and the first few. */
export function complaintsOf({ violations, history }: CellResult): string {
  const shown = RULES.flatMap((rule) => {
    const broken = violations.filter((violation) => violation.rule === rule);
    return broken.length === 0
      ? []
      : [`  ${rule}: ${broken.length}`, ...broken.slice(0, 3).map(({ text }) => `    ${text}`)];
  });
  return [...shown, `  the history: ${history}`].join('\n');
}

function sum(value: (result: CellResult) => number) {
  return (rows: readonly Row[]): number => rows.reduce((total, { result }) => total + value(result), 0);
}

function broken(...rules: Rule[]) {
  return sum(({ violations }) => violations.filter(({ rule }) => rules.includes(rule)).length);
}
