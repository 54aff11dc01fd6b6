import type { NodeError } from '../../api/errors.js';
import { BINARY_LOG, NO_TABLE, NO_TABLE_OR_RIGHTS, READ_ONLY } from './advice.js';

const CODES = new Map([
  [READ_ONLY, 'read-only'],
  [NO_TABLE, 'no-table'],
  [NO_TABLE_OR_RIGHTS, 'no-table-or-rights'],
  [BINARY_LOG, 'statement-log'],
] as const);

/** A database that cannot be used at all, as the doctor says it. @param table quoted */
export function unusable(name: string, table: string, { advice, problem }: NodeError) {
  const code = CODES.get(advice as never) ?? 'unreachable';
  const todo = advice ?? 'Start it, or correct the address, the credentials or the database.';
  return {
    report: { name, reachable: false, problem, summary: `not usable (${problem})`, table },
    finding: { severity: 'error', code, node: name, message: `${name} cannot be used: ${problem}. ${todo}` },
  } as const;
}
