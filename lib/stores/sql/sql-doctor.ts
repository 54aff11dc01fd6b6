import type { Finding } from '../../api/diagnosis.js';
import { NodeError } from '../../api/errors.js';
import type { BackendReport } from '../../core/backend/report.js';
import { inTime } from '../../core/time/time-limit.js';
import { found, refusalOf, type Findings } from '../node/findings.js';
import { BINARY_LOG, NO_TABLE, NO_TABLE_OR_RIGHTS, READ_ONLY, sqlError } from './advice.js';
import type { Row } from './sql-client.js';
import { text, type SqlNode } from './sql-node.js';
import type { Statement } from './statement.js';

/** What a doctor sees: the row of its statement, and the names of the database and, quoted, of the table. */
export type Seen = Row & { readonly name: string; readonly table: string };

/** What is checked in the databases of one dialect. */
export interface SqlDoctor {
  readonly backend: string;
  /** Answers with one row. Its value is the name of the table, quoted. */
  readonly look: Statement;
  readonly errors: Findings<Seen, string>;
  readonly warnings: Findings<Seen, string>;
  /** The codes of errors with which the application does not start. */
  readonly unsafe: ReadonlySet<string>;
  /** What the database is called. */
  storeOf(row: Row): string;
  /** What the report has besides. */
  detailsOf?(row: Row): object;
}

/** @param differencesIn in what the columns are not those of `ddl()` */
export function wrongColumn(differencesIn: (row: Row) => string[]): (seen: Seen) => string | false {
  return (seen) => {
    const differences = differencesIn(seen);
    return (
      differences.length > 0 &&
      `has a table ${seen.table} that is not what ddl() describes: ${differences.join('; ')}. ` +
        'Two keys could be one lock, or a lock be had twice. Change its columns in a migration.'
    );
  };
}

export function noPrimaryKey({ table, has_key: hasKey }: Seen): string | false {
  return (
    Number(hasKey) !== 1 &&
    `has no primary key on resource_lock_key of ${table}: two callers can hold the same lock. Add it in a migration.`
  );
}

/** @param settings of a server that forgets in a crash what it has answered */
export function notDurable(settings: readonly string[], are: string, toBe: string): string | false {
  const names = settings.join(' and ');
  return (
    names !== '' &&
    `has ${names} ${are}: a crash forgets locks that it has granted, and then two callers can hold the same lock. ` +
      `Set ${names} to ${toBe}.`
  );
}

/**
 * Checks the database and its table, and changes nothing there. Never rejects; settles within `timeoutMs`.
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

/** The findings, errors first. */
export function findingsOf({ errors, warnings }: SqlDoctor, seen: Seen): Finding[] {
  return [...found('error', errors, seen.name, seen), ...found('warning', warnings, seen.name, seen)];
}

/** The codes of problems with which a database cannot be used at all, by what to do about them. */
const CODES: ReadonlyMap<string | undefined, string> = new Map([
  [READ_ONLY, 'read-only'],
  [NO_TABLE, 'no-table'],
  [NO_TABLE_OR_RIGHTS, 'no-table-or-rights'],
  [BINARY_LOG, 'statement-log'],
]);

function unusable(node: string, { advice, problem }: NodeError): Finding {
  const todo = advice ?? 'Start it, or correct the address, the credentials or the database.';
  const code = CODES.get(advice) ?? 'unreachable';
  return { severity: 'error', code, node, message: `${node} cannot be used: ${problem}. ${todo}` };
}
