import type { NodeError } from '../../api/errors.js';
import { NO_TABLE, READ_ONLY } from './advice.js';

/** A database that cannot be used at all, as the doctor says it. @param table quoted */
export function unusable(name: string, table: string, { advice, problem }: NodeError) {
  const code = advice === READ_ONLY ? 'read-only' : advice === NO_TABLE ? 'no-table' : 'unreachable';
  const todo = advice ?? 'Start it, or correct the address, the credentials or the database.';
  return {
    report: { name, reachable: false, problem, summary: `not usable (${problem})`, table },
    finding: { severity: 'error', code, node: name, message: `${name} cannot be used: ${problem}. ${todo}` },
  } as const;
}
