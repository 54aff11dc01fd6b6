import { LockOptionsError, NodeError } from '../../../api/errors.js';
import { quoted } from '../../../api/printable.js';
import type { Finding, NodeReport } from '../../../api/diagnosis.js';
import { ACQUISITION } from '../../../core/backend/lane.js';
import type { BackendReport } from '../../../core/backend/report.js';
import { inTime } from '../../../core/time/time-limit.js';
import { sqlError } from '../advice.js';
import type { Row } from '../sql-client.js';
import { unusable } from '../unusable.js';
import type { PostgresNode } from './postgres-node.js';
import { ddl, PostgresStatement } from './statements.js';

/** The state of the database and of the table of the locks. `undefined` stands for what could not be found out. */
export interface PostgresDiagnosis extends NodeReport {
  /** The version of the server, such as `15.18`. */
  version?: string;
  /** The name of the table, quoted. */
  table: string;
  /** About how many rows the table has: one for each key that was locked lately. */
  rows?: number;
  /** About how many rows wait to be vacuumed away. */
  deadRows?: number;
  /** How long the oldest transaction has been open that this user may see, in milliseconds. */
  oldestTransactionMs?: number;
}

/** The subject of a finding about PostgreSQL, for programs. */
export type PostgresFindingCode =
  | 'unreachable'
  /** It is a replica, or refuses to write. */
  | 'read-only'
  /** There is no table of the locks. */
  | 'no-table'
  | 'too-old'
  /** The table has a column of another type or collation than `ddl()` says, or lacks one. */
  | 'wrong-column'
  /** Two rows can have one key. */
  | 'no-primary-key'
  /** A crash empties the table, or it is seen by one session only. */
  | 'not-permanent'
  /** Policies of the table decide which rows its user sees. */
  | 'row-security'
  /** A crash of the server can undo what it has answered. */
  | 'not-durable'
  /** Nothing cleans the table up. */
  | 'no-autovacuum'
  /** The table grows while a transaction is open for long. */
  | 'old-transaction'
  /** The search_path has several tables of that name. */
  | 'several-tables';

/** From this age on a transaction is reported, in milliseconds. */
const OLD_TRANSACTION_MS = 600_000;
/** The first version with `AS MATERIALIZED`. */
const OLDEST = 12;

/** Runs on any version. Whom this user may not watch is not seen: their transactions have no time. */
const LOOK = new PostgresStatement(
  'doctor',
  `
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
  current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('autovacuum') AS autovacuum, array_to_string(t.reloptions, ' ') AS storage,
  t.relpersistence::text AS persistence, pg_stat_get_live_tuples(t.oid)::text AS rows, pg_stat_get_dead_tuples(t.oid)::text AS dead,
  row_security_active(t.oid)::int AS has_policies,
  (SELECT json_object_agg(a.attname, format_type(a.atttypid, a.atttypmod) ||
      CASE WHEN a.attname = 'resource_lock_key' THEN ' ' || coalesce(c.collname, '') ELSE '' END)::text
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
  t.relnamespace::regnamespace::text AS schema,
  (SELECT string_agg(n.nspname, ', ') FROM pg_class o JOIN pg_namespace n ON n.oid = o.relnamespace
    WHERE o.relname = t.relname AND o.oid <> t.oid AND n.nspname = ANY (current_schemas(true))) AS others,
  EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
      AND a.attname = 'resource_lock_key')::int AS has_key,
  (SELECT (extract(epoch FROM max(clock_timestamp() - began)) * 1000)::text FROM (
    SELECT xact_start AS began FROM pg_stat_activity WHERE backend_xmin IS NOT NULL OR backend_xid IS NOT NULL
    UNION ALL SELECT prepared FROM pg_prepared_xacts) AS open) AS oldest
FROM pg_class t WHERE t.oid = to_regclass($1::text)`,
  ACQUISITION + 1,
);

/** Checks the database and its table, and changes nothing there. Never rejects; settles within `timeoutMs`. */
export async function reportOnPostgres(node: PostgresNode, table: string, timeoutMs: number): Promise<BackendReport> {
  const { name } = node;
  const late = () => sqlError(name, `no answer within ${timeoutMs} ms`);
  const row = await inTime(look(node, table, timeoutMs), timeoutMs, late);
  const where = `in PostgreSQL (${name})`;
  if (row instanceof NodeError) {
    const { report, finding } = unusable(name, table, row);
    return { backend: 'postgres', where, nodes: [report], findings: [finding] };
  }
  const findings = findingsOf(name, table, row);
  const unsafe = findings.filter(({ code }) => code === 'wrong-column' || code === 'no-primary-key');
  const refusal = unsafe.length > 0 ? new LockOptionsError(unsafe.map(({ message }) => message).join(' ')) : undefined;
  return { backend: 'postgres', where, nodes: [reportOf(name, table, row)], findings, refusal };
}

async function look(node: PostgresNode, table: string, timeoutMs: number): Promise<Row | NodeError> {
  return (await node.connection.ready(timeoutMs)) ?? node.ask(LOOK, [table]);
}

function reportOf(name: string, table: string, row: Row): PostgresDiagnosis {
  const [rows, deadRows] = [Number(row.rows), Number(row.dead)];
  const summary = `PostgreSQL ${String(row.version)}, table ${table} in schema ${String(row.schema)} with about ${rows} row${rows === 1 ? '' : 's'}`;
  const oldestTransactionMs = row.oldest === null ? undefined : Math.round(Number(row.oldest));
  return {
    name,
    reachable: true,
    summary,
    version: String(row.version),
    table,
    rows,
    deadRows,
    ...(oldestTransactionMs !== undefined && { oldestTransactionMs }),
  };
}

type PostgresFinding = Finding & { code: PostgresFindingCode };

/** The findings, errors first. */
export function findingsOf(node: string, table: string, row: Row): PostgresFinding[] {
  const findings: PostgresFinding[] = [];
  const found = (severity: Finding['severity'], code: PostgresFindingCode, message: string) =>
    findings.push({ severity, code, node, message: `${node} ${message}` });

  if (Number(row.major) < OLDEST)
    found('error', 'too-old', `runs PostgreSQL ${String(row.version)}: locks need ${OLDEST} or newer. Update it.`);
  const wrong = differences(JSON.parse(String(row.columns)) as Record<string, string>);
  if (wrong.length > 0)
    found(
      'error',
      'wrong-column',
      `has a table ${table} that is not what ddl() describes: ${wrong.join('; ')}. ` +
        'Two keys could be one lock, or a lock be had twice. Change its columns in a migration.',
    );
  if (Number(row.has_key) === 0)
    found(
      'error',
      'no-primary-key',
      `has no primary key on resource_lock_key of ${table}: two callers can hold the same lock. Add it in a migration.`,
    );
  if (row.persistence !== 'p')
    found(
      'error',
      'not-permanent',
      `has ${table} as ${row.persistence === 'u' ? 'an UNLOGGED table: a crash or a failover empties it' : 'a temporary table: other sessions do not see it'}, ` +
        'and then two callers can hold the same lock. Make it an ordinary one (ALTER TABLE ... SET LOGGED).',
    );
  if (Number(row.has_policies) === 1)
    found(
      'error',
      'row-security',
      `has row level security on ${table}: locks whose rows a policy hides from its user cannot be taken. ` +
        'Turn it off: ALTER TABLE ... DISABLE ROW LEVEL SECURITY.',
    );

  // That of PGlite ends with its process, and so does each lock.
  const loose = ['fsync', 'synchronous_commit'].filter((setting) => row[setting] === 'off');
  if (loose.length > 0 && node !== 'PGlite')
    found(
      'warning',
      'not-durable',
      `has ${loose.join(' and ')} off: a crash forgets locks that it has granted, and then two callers can hold the same lock. ` +
        `Set ${loose.join(' and ')} to on.`,
    );
  if (typeof row.others === 'string' && !table.includes('.'))
    found(
      'warning',
      'several-tables',
      `has a table ${table} in several schemas of the search_path: this user has its locks in ${String(row.schema)}, and another user could ` +
        `have them in ${row.others}. Name the schema in the option table.`,
    );
  if (row.autovacuum === 'off' || /autovacuum_enabled=(false|off|0)/.test(String(row.storage)))
    found(
      'warning',
      'no-autovacuum',
      `does not vacuum ${table}: it grows with each lock, and all locks slow down. Turn autovacuum on.`,
    );
  if (Number(row.oldest) > OLD_TRANSACTION_MS)
    found(
      'warning',
      'old-transaction',
      `has a transaction that is open for ${Math.floor(Number(row.oldest) / 60_000)} minutes: until it ends no old version of a row is ` +
        'cleaned up, and locks that are often taken slow down. End it: see pg_stat_activity.',
    );
  return findings;
}

/** In what the columns are not those of `ddl()`. */
function differences(columns: Readonly<Record<string, string>>): string[] {
  const wanted = [...ddl('').matchAll(/^ {2}(\w+) +(\w+(?:\[\])?)/gm)].map(([, name, type]) => {
    const full = type === 'timestamptz' ? 'timestamp with time zone' : type;
    return [name!, name === 'resource_lock_key' ? `${full} C` : full!] as const;
  });
  return wanted.flatMap(([name, type]) => {
    const is = columns[name];
    if (is === type || is === type.replace(/ C$/, ' POSIX')) return [];
    const described = (text: string) =>
      text.replace(/ (\w+)$/, (all, collation: string) =>
        name === 'resource_lock_key' ? ` COLLATE ${quoted(collation)}` : all,
      );
    return [`${name} is ${is === undefined ? 'missing' : described(is)}, and should be ${described(type)}`];
  });
}
