import type { NodeReport } from '../../../api/diagnosis.js';
import { ACQUISITION } from '../../../core/backend/lane.js';
import type { Findings } from '../../node/findings.js';
import type { Row, SqlClient } from '../sql-client.js';
import { noPrimaryKey, notDurable, wrongColumn, type Seen, type SqlDoctor } from '../sql-doctor.js';
import { ddl } from './statements.js';

/** The state of the database and of the lock table. A field is `undefined` if it could not be checked. */
export interface MysqlDiagnosis extends NodeReport {
  /** The version of the server, such as `10.11.18-MariaDB`. */
  version?: string;
  /** The name of the table, quoted. */
  table: string;
  /** The approximate number of rows: one for each recently locked key. */
  rows?: number;
}

/** A stable code for a finding about MySQL or MariaDB, for programs to match on. */
export type MysqlFindingCode =
  | 'unreachable'
  /** It is a replica, or refuses writes. */
  | 'read-only'
  /** The lock table does not exist. */
  | 'no-table'
  /** Its user has no rights on the table, or the table does not exist. MySQL does not say which. */
  | 'no-table-or-rights'
  /** Its `binlog_format` is STATEMENT, so it refuses all writes of locks. */
  | 'statement-log'
  | 'too-old'
  /** The tests have not run on a MySQL that old. */
  | 'not-run'
  /** A column of the table is missing, or its type differs from `ddl()`. */
  | 'wrong-column'
  /** Two rows can have the same key. */
  | 'no-primary-key'
  /** The table does not support transactions. */
  | 'wrong-engine'
  /** A crash of the server can lose acknowledged writes. */
  | 'not-durable'
  /** Several servers accept writes, and row locks on one do not affect the others. */
  | 'several-primaries';

/** Read with `SHOW VARIABLES`, because MySQL and MariaDB have different variables. */
const VARIABLES = [
  'version',
  'innodb_flush_log_at_trx_commit',
  'log_bin',
  'sync_binlog',
  'wsrep_on',
  'group_replication_single_primary_mode',
  'group_replication_group_name',
];

/** The version of MySQL in our tests. */
const RUN = [9, 7, 0];
/** The first versions with `SKIP LOCKED`. */
const OLDEST = { MySQL: [8, 0, 1], MariaDB: [10, 6, 0] } as const;

async function look(client: SqlClient, table: string): Promise<Row> {
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

export const MYSQL: SqlDoctor = {
  backend: 'mysql',
  look: { order: ACQUISITION + 1, most: 1, run: async (client, [table]) => [await look(client, String(table))] },
  errors: {
    'too-old': (seen) => {
      const [store, version] = [storeOf(seen), String(seen.version)];
      const oldest = OLDEST[store];
      return (
        isOlder(version, oldest) && `runs ${store} ${version}: locks need ${oldest.join('.')} or newer. Update it.`
      );
    },
    'wrong-column': wrongColumn(({ columns }) => differences(columns as [string, string][])),
    'no-primary-key': noPrimaryKey,
    'wrong-engine': ({ table, engine }) =>
      String(engine).toLowerCase() !== 'innodb' &&
      `keeps ${table} in the engine ${String(engine)}: two callers can hold the same lock. Use ENGINE = InnoDB.`,
    'several-primaries': (seen) =>
      (seen.wsrep_on === 'ON' ||
        Boolean(seen.group_replication_group_name && seen.group_replication_single_primary_mode === 'OFF')) &&
      'is one of several servers that accept writes, and row locks on one do not affect the others: a guard has no effect there. Use a single primary.',
  } satisfies Findings<Seen, MysqlFindingCode>,
  warnings: {
    // After a crash the server rolls back transactions that are missing in its binary log.
    'not-durable': (seen) =>
      notDurable(
        ['innodb_flush_log_at_trx_commit', ...(seen.log_bin === 'ON' ? ['sync_binlog'] : [])].filter(
          (variable) => Number(seen[variable]) !== 1,
        ),
        'not at 1',
        '1',
      ),
    'not-run': (seen) =>
      storeOf(seen) === 'MySQL' &&
      isOlder(String(seen.version), RUN) &&
      `runs MySQL ${String(seen.version)}: this library was tested with MySQL 9.7, and not with older versions. Test it with yours first.`,
  } satisfies Findings<Seen, MysqlFindingCode>,
  unsafe: new Set<MysqlFindingCode>(['wrong-column', 'no-primary-key', 'wrong-engine', 'several-primaries']),
  storeOf,
};

function storeOf({ version }: Row): 'MySQL' | 'MariaDB' {
  return /mariadb/i.test(String(version)) ? 'MariaDB' : 'MySQL';
}

function isOlder(version: string, oldest: readonly number[]): boolean {
  const numbers = version.split(/[.-]/).slice(0, 3).map(Number);
  const at = oldest.findIndex((number, index) => numbers[index] !== number);
  return at >= 0 && numbers[at]! < oldest[at]!;
}

/** Returns the differences between the columns and `ddl()`. */
function differences(columns: readonly [name: string, type: string][]): string[] {
  const types = new Map(columns);
  const wanted = [...ddl('').matchAll(/^ {2}([a-z_]+) +([a-z]+(?:\(\d+\))?) NOT NULL/gm)];
  return wanted.flatMap(([, name, type]) => {
    const is = types.get(name!);
    // MySQL and MariaDB differ in how they show the width of integers.
    if (is !== undefined && (is === type || (/^(big|tiny)?int$/.test(type!) && is.startsWith(type!)))) return [];
    return [`${name} is ${is ?? 'missing'}, and should be ${type}`];
  });
}
