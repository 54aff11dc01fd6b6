import type { Finding } from '../../api/diagnosis.js';
import { NodeError } from '../../api/errors.js';
import type { BackendReport } from '../../core/backend/report.js';
import { inTime } from '../../core/time/time-limit.js';
import { found, refusalOf, type Findings } from '../node/findings.js';
import { BINARY_LOG, NO_TABLE, NO_TABLE_OR_RIGHTS, READ_ONLY, sqlError } from './advice.js';
import type { Row } from './sql-client.js';
import { text, type SqlNode } from './sql-node.js';
import type { Statement } from './statement.js';

/** The data of a check: the row of its statement, the name of the database, and the quoted name of the table. */
export type Seen = Row & { readonly name: string; readonly table: string };

/** The checks for one dialect. */
export interface SqlDoctor {
  readonly backend: string;
  /** Returns one row. Its only value is the quoted name of the table. */
  readonly look: Statement;
  readonly errors: Findings<Seen, string>;
  readonly warnings: Findings<Seen, string>;
  /** The codes of errors that prevent the application from starting. */
  readonly unsafe: ReadonlySet<string>;
  /** Returns the name of the database system. */
  storeOf(row: Row): string;
  /** Returns additional fields of the report. */
  detailsOf?(row: Row): object;
}

/** @param differencesIn returns the differences between the columns and `ddl()` */
export function wrongColumn(differencesIn: (row: Row) => string[]): (seen: Seen) => string | false {
  return (seen) => {
    const differences = differencesIn(seen);
    return (
      differences.length > 0 &&
      `has a table ${seen.table} that differs from ddl(): ${differences.join('; ')}. ` +
        'Two keys could share one lock, or two callers hold the same lock. Change its columns in a migration.'
    );
  };
}

export function noPrimaryKey({ table, has_key: hasKey }: Seen): string | false {
  return (
    Number(hasKey) !== 1 &&
    `has no primary key on resource_lock_key of ${table}: two callers can hold the same lock. Add it in a migration.`
  );
}

/** @param settings the settings with which a crash loses acknowledged writes */
export function notDurable(settings: readonly string[], are: string, toBe: string): string | false {
  const names = settings.join(' and ');
  return (
    names !== '' &&
    `has ${names} ${are}: a crash loses locks that it has granted, and then two callers can hold the same lock. ` +
      `Set ${names} to ${toBe}.`
  );
}

/**
 * Checks the database and its table without changing them. Never rejects, and settles within `timeoutMs`.
 * @param table quoted
 */
export async function reportOnSql(
  doctor: SqlDoctor,
  node: SqlNode,
  table: string,
  timeoutMs: number,
): Promise<BackendReport> {
  const { backend, unsafe } = doctor;
  const { name } = node;
  const look = async () => (await node.connection.ready(timeoutMs)) ?? node.ask(doctor.look, [table]);
  const row = await inTime(look(), timeoutMs, () => sqlError(name, `no answer within ${timeoutMs} ms`));
  if (row instanceof NodeError) {
    const { problem } = row;
    const report = { name, reachable: false, problem, summary: `not usable (${problem})`, table };
    return { backend, where: `in ${doctor.storeOf({})} (${name})`, nodes: [report], findings: [unusable(name, row)] };
  }
  const findings = findingsOf(doctor, { ...row, name, table });
  const [store, version, rows] = [doctor.storeOf(row), String(row.version), Number(row.rows ?? 0)];
  const ofSchema = row.schema === undefined ? '' : ` in schema ${text(row.schema)}`;
  const summary = `${store} ${version}, table ${table}${ofSchema} with about ${rows} row${rows === 1 ? '' : 's'}`;
  const report = { name, reachable: true, summary, version, table, rows, ...doctor.detailsOf?.(row) };
  return { backend, where: `in ${store} (${name})`, nodes: [report], findings, refusal: refusalOf(findings, unsafe) };
}

/** Returns the findings, errors first. */
export function findingsOf({ errors, warnings }: SqlDoctor, seen: Seen): Finding[] {
  return [...found('error', errors, seen.name, seen), ...found('warning', warnings, seen.name, seen)];
}

/** The codes of problems that make a database unusable, by their advice. */
const CODES: ReadonlyMap<string | undefined, string> = new Map([
  [READ_ONLY, 'read-only'],
  [NO_TABLE, 'no-table'],
  [NO_TABLE_OR_RIGHTS, 'no-table-or-rights'],
  [BINARY_LOG, 'statement-log'],
]);

function unusable(node: string, { advice, problem }: NodeError): Finding {
  const remedy = advice ?? 'Start it, or correct the address, the credentials or the database.';
  const code = CODES.get(advice) ?? 'unreachable';
  return { severity: 'error', code, node, message: `${node} cannot be used: ${problem}. ${remedy}` };
}
