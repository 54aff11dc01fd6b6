import {
  checked,
  isOptions,
  milliseconds,
  oneOf,
  refuseUnknown,
  invalidOption,
  type Check,
} from '../../core/options/checks.js';

/** When to delete the rows of unused locks. */
export interface JanitorOptions {
  /** How long a row must be unused, in milliseconds, 60 000 to 31 536 000 000 (a year). @default 86400000, a day */
  keepMs?: number;
}

/** Options for locks in a table of the application's database. */
export interface SqlStoreOptions {
  /**
   * The table of the locks: `name`, or `schema.name`, which is `database.name` in MySQL. Letters, digits and `_`; upper and lower case count.
   * @default 'resource_lock'
   */
  table?: string;
  /**
   * Create the table at the start, if it does not exist: for tests and first steps. In production, create it in a migration with the
   * statement that `ddl()` returns, because the database user of an application should not have the right to create tables.
   * @default false
   */
  createTable?: boolean;
  /**
   * A database that does not answer a statement for this long counts as unavailable, in milliseconds, 10 to 60 000.
   * @default 2000
   */
  commandTimeoutMs?: number;
  /** When one of the processes deletes the rows of unused locks. `false`: never, so the table grows. */
  janitor?: JanitorOptions | false;
}

/** Options of the store with every default filled in and every bound checked. */
export interface ResolvedSqlOptions extends Required<Omit<SqlStoreOptions, 'janitor'>> {
  /** Undefined if no rows are deleted. */
  keepMs?: number;
}

const DAY_MS = 86_400_000;
const NAME = /^[A-Za-z_]\w{0,62}$/;

export const SQL_CHECKS: Readonly<Record<keyof SqlStoreOptions, Check>> = {
  table: (name, value) => {
    const parts = typeof value === 'string' ? value.split('.') : [];
    if (parts.length === 0 || parts.length > 2 || !parts.every((part) => NAME.test(part)))
      throw invalidOption(name, value, 'the name of a table, or schema.name, of letters, digits and _');
  },
  createTable: oneOf(true, false),
  commandTimeoutMs: milliseconds(10, 60_000),
  janitor: (name, value) => {
    if (value === false) return;
    if (!isOptions(value)) throw invalidOption(name, value, 'false, or an object like { keepMs: 86_400_000 }');
    refuseUnknown(value, ['keepMs']);
    const { keepMs } = value as JanitorOptions;
    if (keepMs !== undefined) milliseconds(60_000, 365 * DAY_MS)(`${name}.keepMs`, keepMs);
  },
};

/**
 * Checks the options of the store and fills in their defaults; ignores other options.
 * @throws LockOptionsError for a value out of bounds
 */
export function resolveSqlOptions(options: SqlStoreOptions): ResolvedSqlOptions {
  const {
    table = 'resource_lock',
    createTable = false,
    commandTimeoutMs = 2_000,
    janitor = {},
  }: SqlStoreOptions = checked(options, SQL_CHECKS);
  const keepMs = janitor === false ? undefined : (janitor.keepMs ?? DAY_MS);
  return { table, createTable, commandTimeoutMs, keepMs };
}

/** The supported databases. */
export const DIALECTS = ['postgres', 'mysql'] as const;
export type SqlDialect = (typeof DIALECTS)[number];

/** Returns the name of a table for a statement, with all parts quoted, so that a part can be a keyword. */
export function quotedTable(table: string, dialect: SqlDialect): string {
  SQL_CHECKS.table('table', table);
  return table
    .split('.')
    .map((part) => (dialect === 'mysql' ? `\`${part}\`` : JSON.stringify(part))) // the check allows no character that needs an escape
    .join('.');
}
