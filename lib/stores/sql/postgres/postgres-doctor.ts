import { randomUUID } from 'node:crypto';
import { LockOptionsError, NodeError } from '../../../api/errors.js';
import { quoted } from '../../../api/printable.js';
import type { Finding, NodeReport } from '../../../api/diagnosis.js';
import { ACQUISITION } from '../../../core/backend/lane.js';
import type { BackendReport } from '../../../core/backend/report.js';
import { inTime } from '../../../core/time/time-limit.js';
import { sqlError } from '../advice.js';
import type { Row, SqlClient, SqlSource } from '../sql-client.js';
import { faultOf } from '../sql-fault.js';
import type { Statement } from '../statement.js';
import { unusable } from '../unusable.js';
import type { PostgresNode } from './postgres-node.js';
import type { PostgresClient } from './postgres-source.js';
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
  /** Its user may not change the table. */
  | 'missing-rights'
  /** Policies of the table decide which rows its user sees. */
  | 'row-security'
  /** A crash of the server can undo what it has answered. */
  | 'not-durable'
  /** Nothing cleans the table up. */
  | 'no-autovacuum'
  /** The table grows while a transaction is open for long. */
  | 'old-transaction'
  /** The search_path has several tables of that name. */
  | 'several-tables'
  /** LISTEN does not work: whoever waits asks from time to time instead. */
  | 'not-heard';

/** From this age on a transaction is reported, in milliseconds. */
const OLD_TRANSACTION_MS = 600_000;
/** The first version with `AS MATERIALIZED`. */
const OLDEST = 12;
const RIGHTS = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];
const CHANNEL = 'nest_redis_lock_doctor';

/** Runs on any version. Whom this user may not watch is not seen: their transactions have no time. */
const LOOK = new PostgresStatement(
  'doctor',
  `
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
  current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('autovacuum') AS autovacuum, array_to_string(t.reloptions, ' ') AS storage,
  t.relpersistence::text AS persistence, pg_stat_get_live_tuples(t.oid)::text AS rows, pg_stat_get_dead_tuples(t.oid)::text AS dead,
  (SELECT string_agg(r.name, ', ' ORDER BY r.n) FROM unnest($2::text[]) WITH ORDINALITY AS r(name, n)
    WHERE NOT has_table_privilege(t.oid, r.name)) AS lacking, row_security_active(t.oid)::int AS has_policies,
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

/** Changes the table in a transaction that is rolled back. @param table quoted */
function trialOf(table: string): Statement {
  const set = "VALUES ($1, '', 0, now(), now(), now())";
  const steps = [
    `INSERT INTO ${table} (resource_lock_key, resource_lock_value, fence, acquired_at, update_time, expires_at) ${set} RETURNING 1`,
    `UPDATE ${table} SET fence = 1 WHERE resource_lock_key = $1 RETURNING 1`,
    `DELETE FROM ${table} WHERE resource_lock_key = $1 RETURNING 1`,
  ];
  const run = async (client: SqlClient, values: readonly unknown[]) => {
    await client.query({ name: 'begin', text: 'BEGIN' }, []);
    try {
      for (const [at, text] of steps.entries()) {
        const rows = await client.query({ name: `trial_${at}`, text }, values);
        if (rows.length === 0) throw new NotFound();
      }
    } finally {
      await client.query({ name: 'rollback', text: 'ROLLBACK' }, []);
    }
    return [];
  };
  return { order: ACQUISITION + 1, most: 1, run };
}

/** Its code keeps it from being taken for an error of the connection. */
class NotFound extends Error {
  readonly code = '42501';

  constructor() {
    super('it does not find the row that it has written');
  }
}

const NOTIFY = new PostgresStatement('doctor_notify', `SELECT pg_notify($1, 'heard')::text`, ACQUISITION + 1);

/** Checks the database, its table and its notifications, and changes nothing there. Never rejects; settles within `timeoutMs`. */
export async function reportOnPostgres(
  node: PostgresNode,
  source: SqlSource<PostgresClient>,
  table: string,
  timeoutMs: number,
): Promise<BackendReport> {
  const late = () => sqlError(source.name, `no answer within ${timeoutMs} ms`);
  const seen = await inTime(look(node, source, table, timeoutMs), timeoutMs, late);
  const where = `in PostgreSQL (${source.name})`;
  if (seen instanceof NodeError) {
    const { report, finding } = unusable(source.name, table, seen);
    return { backend: 'postgres', where, nodes: [report], findings: [finding] };
  }
  const findings = findingsOf(source.name, table, seen);
  const unsafe = findings.filter(({ code }) => code === 'wrong-column' || code === 'no-primary-key');
  const refusal = unsafe.length > 0 ? new LockOptionsError(unsafe.map(({ message }) => message).join(' ')) : undefined;
  return { backend: 'postgres', where, nodes: [reportOf(source.name, table, seen.row)], findings, refusal };
}

/** What was seen of a database that answers. */
interface Seen {
  readonly row: Row;
  /** Why no message arrives; undefined: it does. */
  readonly deafBecause?: string;
  /** Why the table cannot be changed; undefined: it can. */
  readonly refused?: NodeError;
}

async function look(
  node: PostgresNode,
  source: SqlSource<PostgresClient>,
  table: string,
  timeoutMs: number,
): Promise<Seen | NodeError> {
  const problem = await node.connection.ready(timeoutMs);
  if (problem) return problem;
  const [row, deafBecause] = await Promise.all([node.ask(LOOK, [table, RIGHTS]), deafness(node, source)]);
  if (row instanceof NodeError) return row;
  // That of PGlite is the connection of the application, too.
  const trial = source.name === 'PGlite' ? undefined : await node.ask(trialOf(table), [`}doctor ${randomUUID()}`]);
  return { row, deafBecause, refused: trial instanceof NodeError && node.connection.isReady ? trial : undefined };
}

/** Sends a message to a connection of its own, which has it before it answers the next statement. */
async function deafness(node: PostgresNode, source: SqlSource<PostgresClient>): Promise<string | undefined> {
  let client: PostgresClient | undefined;
  try {
    let isHeard = false;
    client = await source.connect(() => {});
    const channel = `${CHANNEL}_${Math.random().toString(36).slice(2)}`;
    await client.listen(channel, () => (isHeard = true));
    const sent = await node.ask(NOTIFY, [channel]);
    if (sent instanceof NodeError) return sent.problem;
    await client.query({ name: 'heard', text: 'SELECT 1' }, []);
    return isHeard ? undefined : 'it takes LISTEN, and delivers nothing';
  } catch (error) {
    return faultOf(error, true).problem;
  } finally {
    client?.close();
  }
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
export function findingsOf(node: string, table: string, { row, deafBecause, refused }: Seen): PostgresFinding[] {
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
  if (typeof row.lacking === 'string')
    found(
      'error',
      'missing-rights',
      `does not give its user the rights ${row.lacking} on ${table}: locks cannot be taken. Add them with GRANT.`,
    );
  else if (refused && wrong.length === 0)
    found(
      'error',
      'missing-rights',
      `does not let its user change ${table} (${refused.problem}): locks cannot be taken. ${refused.advice ?? 'Let it.'}`,
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
  if (deafBecause !== undefined)
    found(
      'warning',
      'not-heard',
      `does not deliver notifications (${deafBecause}): calls that wait for a lock ask from time to time instead. ` +
        'If a pooler is in between, give the address of PostgreSQL itself.',
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
