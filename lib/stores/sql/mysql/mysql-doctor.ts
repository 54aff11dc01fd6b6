import { LockOptionsError, NodeError } from '../../../api/errors.js';
import type { Finding, NodeReport } from '../../../api/diagnosis.js';
import { ACQUISITION } from '../../../core/backend/lane.js';
import type { BackendReport } from '../../../core/backend/report.js';
import { inTime } from '../../../core/time/time-limit.js';
import { sqlError } from '../advice.js';
import type { Row, SqlClient } from '../sql-client.js';
import type { Statement } from '../statement.js';
import { unusable } from '../unusable.js';
import type { MysqlNode } from './mysql-node.js';
import { ddl } from './statements.js';

/** The state of the database and of the table of the locks. `undefined` stands for what could not be found out. */
export interface MysqlDiagnosis extends NodeReport {
  /** The version of the server, such as `10.11.18-MariaDB`. */
  version?: string;
  /** The name of the table, quoted. */
  table: string;
  /** About how many rows the table has: one for each key that was locked lately. */
  rows?: number;
}

/** The subject of a finding about MySQL or MariaDB, for programs. */
export type MysqlFindingCode =
  | 'unreachable'
  /** It is a replica, or refuses to write. */
  | 'read-only'
  /** There is no table of the locks. */
  | 'no-table'
  /** Its user has no rights on the table, or there is none: MySQL tells such a user the same. */
  | 'no-table-or-rights'
  /** Its binary log consists of statements, so that it refuses each write of locks. */
  | 'statement-log'
  | 'too-old'
  /** This library was not run with it. */
  | 'not-run'
  /** The table has a column of another type than `ddl()` says, or lacks one. */
  | 'wrong-column'
  /** Two rows can have one key. */
  | 'no-primary-key'
  /** The table has no transactions. */
  | 'wrong-engine'
  /** A crash of the server can undo what it has answered. */
  | 'not-durable'
  /** Several servers take writes, and each locks rows for itself. */
  | 'several-primaries';

/** Variables whose names differ between MySQL and MariaDB, or that one of them lacks, are asked for by `SHOW VARIABLES`. */
const VARIABLES = [
  'version',
  'innodb_flush_log_at_trx_commit',
  'log_bin',
  'sync_binlog',
  'wsrep_on',
  'group_replication_single_primary_mode',
  'group_replication_group_name',
];

/** The first versions with `SKIP LOCKED`. */
const OLDEST = { MySQL: [8, 0, 1], MariaDB: [10, 6, 0] } as const;

/** @param table quoted */
function lookOf(table: string): Statement {
  return { order: ACQUISITION + 1, most: 1, run: async (client) => [await seen(client, table)] };
}

async function seen(client: SqlClient, table: string): Promise<Row> {
  const ask = (text: string, values: unknown[] = []) => client.query({ name: 'doctor', text }, values);
  const variables = await ask(`SHOW GLOBAL VARIABLES WHERE Variable_name IN (?)`, [VARIABLES]);
  const value = (row: Row, name: string) => Object.entries(row).find(([key]) => key.toLowerCase() === name)?.[1];
  const row: Record<string, unknown> = {};
  for (const variable of variables) row[String(value(variable, 'variable_name'))] = value(variable, 'value');
  const columns = await ask(`SHOW COLUMNS FROM ${table}`);
  row.columns = columns.map((column) => [String(value(column, 'field')), String(value(column, 'type')).toLowerCase()]);
  const keys = await ask(`SHOW INDEX FROM ${table} WHERE Non_unique = 0`);
  const ofName = (name: unknown) => keys.filter((key) => value(key, 'key_name') === name);
  row.has_key = keys.some(
    (key) =>
      String(value(key, 'column_name')) === 'resource_lock_key' &&
      value(key, 'sub_part') === null &&
      ofName(value(key, 'key_name')).length === 1,
  );
  const [schema, name] = table.includes('.')
    ? table.replaceAll('`', '').split('.')
    : [undefined, table.replaceAll('`', '')];
  const [status] = await ask(
    'SELECT engine AS engine, table_rows AS row_count FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?',
    [schema ?? null, name],
  );
  return { ...row, engine: status?.engine, rows: status?.row_count };
}

/** Checks the database and its table, and changes nothing there. Never rejects; settles within `timeoutMs`. */
export async function reportOnMysql(node: MysqlNode, table: string, timeoutMs: number): Promise<BackendReport> {
  const { name } = node;
  const late = () => sqlError(name, `no answer within ${timeoutMs} ms`);
  const row = await inTime(look(node, table, timeoutMs), timeoutMs, late);
  if (row instanceof NodeError) {
    const { report, finding } = unusable(name, table, row);
    return { backend: 'mysql', where: `in MySQL (${name})`, nodes: [report], findings: [finding] };
  }
  const findings = findingsOf(name, table, row);
  const unsafe = findings.filter(({ code }) => UNSAFE.has(code));
  const refusal = unsafe.length > 0 ? new LockOptionsError(unsafe.map(({ message }) => message).join(' ')) : undefined;
  const where = `in ${isMariaDb(row) ? 'MariaDB' : 'MySQL'} (${name})`;
  return { backend: 'mysql', where, nodes: [reportOf(name, table, row)], findings, refusal };
}

/** Two could hold a lock by the very set-up. */
const UNSAFE = new Set<MysqlFindingCode>(['wrong-column', 'no-primary-key', 'wrong-engine', 'several-primaries']);

async function look(node: MysqlNode, table: string, timeoutMs: number): Promise<Row | NodeError> {
  return (await node.connection.ready(timeoutMs)) ?? node.ask(lookOf(table), []);
}

function isMariaDb({ version }: Row): boolean {
  return /mariadb/i.test(String(version));
}

function reportOf(name: string, table: string, row: Row): MysqlDiagnosis {
  const version = String(row.version);
  const rows = Number(row.rows ?? 0);
  const store = isMariaDb(row) ? 'MariaDB' : 'MySQL';
  const summary = `${store} ${version}, table ${table} with about ${rows} row${rows === 1 ? '' : 's'}`;
  return { name, reachable: true, summary, version, table, rows };
}

type MysqlFinding = Finding & { code: MysqlFindingCode };

/** The findings, errors first. */
export function findingsOf(node: string, table: string, row: Row): MysqlFinding[] {
  const findings: MysqlFinding[] = [];
  const found = (severity: Finding['severity'], code: MysqlFindingCode, message: string) =>
    findings.push({ severity, code, node, message: `${node} ${message}` });
  const store = isMariaDb(row) ? 'MariaDB' : 'MySQL';
  const version = String(row.version);

  if (isOlder(version, OLDEST[store]))
    found('error', 'too-old', `runs ${store} ${version}: locks need ${OLDEST[store].join('.')} or newer. Update it.`);
  const wrong = differences(row.columns as [string, string][]);
  if (wrong.length > 0)
    found(
      'error',
      'wrong-column',
      `has a table ${table} that is not what ddl() describes: ${wrong.join('; ')}. ` +
        'Two keys could be one lock, or a lock be had twice. Change its columns in a migration.',
    );
  if (row.has_key !== true)
    found(
      'error',
      'no-primary-key',
      `has no primary key on resource_lock_key of ${table}: two callers can hold the same lock. Add it in a migration.`,
    );
  if (String(row.engine).toLowerCase() !== 'innodb')
    found(
      'error',
      'wrong-engine',
      `has ${table} in the engine ${String(row.engine)}: two callers can hold the same lock. Use ENGINE = InnoDB.`,
    );
  if (
    row.wsrep_on === 'ON' ||
    (row.group_replication_group_name && row.group_replication_single_primary_mode === 'OFF')
  )
    found(
      'error',
      'several-primaries',
      'is one of several servers that take writes, each of which locks rows for itself: a guard does not hold. Use a single primary.',
    );
  // After a crash the server rolls back what its binary log does not have.
  const durable = ['innodb_flush_log_at_trx_commit', ...(row.log_bin === 'ON' ? ['sync_binlog'] : [])];
  const loose = durable.filter((variable) => Number(row[variable]) !== 1);
  if (loose.length > 0)
    found(
      'warning',
      'not-durable',
      `has ${loose.join(' and ')} not at 1: a crash forgets locks that it has granted, and then two callers can hold the same lock. ` +
        `Set ${loose.join(' and ')} to 1.`,
    );
  if (store === 'MySQL')
    found(
      'warning',
      'not-run',
      `runs MySQL ${version}: this library was run on MariaDB 10.11, and not on MySQL. Try it first.`,
    );
  return findings;
}

function isOlder(version: string, oldest: readonly number[]): boolean {
  const numbers = version.split(/[.-]/).slice(0, 3).map(Number);
  const at = oldest.findIndex((number, index) => numbers[index] !== number);
  return at >= 0 && numbers[at]! < oldest[at]!;
}

/** In what the columns are not those of `ddl()`. */
function differences(columns: readonly [name: string, type: string][]): string[] {
  const types = new Map(columns);
  const wanted = [...ddl('').matchAll(/^ {2}([a-z_]+) +([a-z]+(?:\(\d+\))?) NOT NULL/gm)];
  return wanted.flatMap(([, name, type]) => {
    const is = types.get(name!);
    // MySQL and MariaDB show the width of integers in several ways.
    if (is !== undefined && (is === type || (/^(big|tiny)?int$/.test(type!) && is.startsWith(type!)))) return [];
    return [`${name} is ${is ?? 'missing'}, and should be ${type}`];
  });
}
