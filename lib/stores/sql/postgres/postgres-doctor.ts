import { quoted } from '../../../api/printable.js';
import type { NodeReport } from '../../../api/diagnosis.js';
import { ACQUISITION } from '../../../core/backend/lane.js';
import type { Findings } from '../../node/findings.js';
import { noPrimaryKey, notDurable, wrongColumn, type Seen, type SqlDoctor } from '../sql-doctor.js';
import { ddl, PostgresStatement } from './statements.js';

/** The state of the database and of the lock table. A field is `undefined` if it could not be checked. */
export interface PostgresDiagnosis extends NodeReport {
  /** The version of the server, such as `15.18`. */
  version?: string;
  /** The name of the table, quoted. */
  table: string;
  /** The approximate number of rows: one for each recently locked key. */
  rows?: number;
  /** The approximate number of dead rows, which wait for a vacuum. */
  deadRows?: number;
  /** The age of the oldest transaction that this user may see, in milliseconds. */
  oldestTransactionMs?: number;
}

/** A stable code for a finding about PostgreSQL, for programs to match on. */
export type PostgresFindingCode =
  | 'unreachable'
  /** It is a replica, or refuses writes. */
  | 'read-only'
  /** The lock table does not exist. */
  | 'no-table'
  | 'too-old'
  /** A column of the table is missing, or its type or collation differs from `ddl()`. */
  | 'wrong-column'
  /** Two rows can have the same key. */
  | 'no-primary-key'
  /** A crash empties the table, or only one session sees it. */
  | 'not-permanent'
  /** Row-level security policies can hide rows of the table from its user. */
  | 'row-security'
  /** A crash of the server can lose acknowledged writes. */
  | 'not-durable'
  /** Nothing vacuums the table. */
  | 'no-autovacuum'
  /** A transaction has been open for a long time, during which the table grows. */
  | 'old-transaction'
  /** Several schemas of the search_path have a table of that name. */
  | 'several-tables';

/** Older transactions cause a finding, in milliseconds. */
const OLD_TRANSACTION_MS = 600_000;
/** The first version with `AS MATERIALIZED`. */
const OLDEST = 12;

/** Runs on any version. It does not see the age of transactions that this user may not watch. */
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

export const POSTGRES: SqlDoctor = {
  backend: 'postgres',
  look: LOOK,
  errors: {
    'too-old': ({ major, version }) =>
      Number(major) < OLDEST && `runs PostgreSQL ${String(version)}: locks need ${OLDEST} or newer. Update it.`,
    'wrong-column': wrongColumn(({ columns }) => differences(JSON.parse(String(columns)) as Record<string, string>)),
    'no-primary-key': noPrimaryKey,
    'not-permanent': ({ table, persistence }) =>
      persistence !== 'p' &&
      `has ${table} as ${persistence === 'u' ? 'an UNLOGGED table: a crash or a failover empties it' : 'a temporary table: other sessions do not see it'}, ` +
        'and then two callers can hold the same lock. Make it an ordinary one (ALTER TABLE ... SET LOGGED).',
    'row-security': ({ table, has_policies: hasPolicies }) =>
      Number(hasPolicies) === 1 &&
      `has row level security on ${table}: locks whose rows a policy hides from its user cannot be taken. ` +
        'Turn it off: ALTER TABLE ... DISABLE ROW LEVEL SECURITY.',
  } satisfies Findings<Seen, PostgresFindingCode>,
  warnings: {
    // A PGlite ends with its process, and so do its locks.
    'not-durable': (seen) =>
      seen.name !== 'PGlite' &&
      notDurable(
        ['fsync', 'synchronous_commit'].filter((setting) => seen[setting] === 'off'),
        'off',
        'on',
      ),
    'several-tables': ({ table, schema, others }) =>
      typeof others === 'string' &&
      !table.includes('.') &&
      `has a table ${table} in several schemas of the search_path: this user has its locks in ${String(schema)}, and another user could ` +
        `have them in ${others}. Name the schema in the option table.`,
    'no-autovacuum': ({ table, autovacuum, storage }) =>
      (autovacuum === 'off' || /autovacuum_enabled=(false|off|0)/.test(String(storage))) &&
      `does not vacuum ${table}: the table grows with each lock, and all locks slow down. Turn autovacuum on.`,
    'old-transaction': ({ oldest }) =>
      Number(oldest) > OLD_TRANSACTION_MS &&
      `has a transaction that has been open for ${Math.floor(Number(oldest) / 60_000)} minutes: until it ends, PostgreSQL cannot remove old ` +
        'versions of rows, and locks that are often taken slow down. End the transaction: see pg_stat_activity.',
  } satisfies Findings<Seen, PostgresFindingCode>,
  unsafe: new Set<PostgresFindingCode>(['wrong-column', 'no-primary-key']),
  storeOf: () => 'PostgreSQL',
  detailsOf: ({ dead, oldest }): Partial<PostgresDiagnosis> => ({
    deadRows: Number(dead),
    ...(oldest !== null && { oldestTransactionMs: Math.round(Number(oldest)) }),
  }),
};

/** Returns the differences between the columns and `ddl()`. */
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
