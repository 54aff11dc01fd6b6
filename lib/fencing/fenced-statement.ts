import { LockOptionsError } from '../api/errors.js';
import { quoted } from '../api/printable.js';
import { isRecord, invalidOption } from '../core/options/checks.js';
import { checkFencingToken } from './fencing-token.js';
import { StaleTokenError, type StaleTokenDetails } from './stale-token.error.js';

/** A write to one row that carries a fencing token. */
export interface FencedRow {
  /** The table: `stock`, or `shop.stock` with its schema. Names are quoted, so they are case-sensitive. */
  table: string;
  /** The columns that identify the row, and their values; for `fencedUpsert`, the columns of its primary key or a unique index. */
  where: Record<string, unknown>;
  /** The columns to write, and their values. Without any, only the token is written. @default none */
  set?: Record<string, unknown>;
  /** The `fencingToken` of the lock that protects this write. */
  fence: number;
  /** The column that keeps the highest token: `bigint NOT NULL DEFAULT 0`. @default 'fence' */
  column?: string;
}

/** A statement for PostgreSQL, for any driver. It returns one row if it has written, and otherwise none. */
export interface FencedStatement {
  /** SQL with the placeholders `$1`, `$2`, … */
  readonly text: string;
  /** The values of the placeholders. */
  readonly values: unknown[];
  /** The token that it carries. */
  readonly fencingToken: number;
  /** The table, for messages. */
  readonly resource: string;
  /** Whether an old token is the only reason why the write can change nothing. */
  readonly isCertain: boolean;
}

/**
 * Makes a statement that writes to a row and stores the token there, unless the row has seen a newer token. It also changes nothing
 * if there is no such row. Pass the number of returned rows to `assertFenced`.
 * @throws LockOptionsError for invalid names and values
 */
export function fencedUpdate(row: FencedRow): FencedStatement {
  const { values, table, column, where, set, fence } = readRow(row);
  const changes = [...set.map(([name, value]) => `${name} = ${value}`), `${column} = ${fence}`];
  const conditions = [...where.map(([name, value]) => `${name} = ${value}`), `${column} <= ${fence}`];
  const text = `UPDATE ${table} SET ${changes.join(', ')} WHERE ${conditions.join(' AND ')} RETURNING ${column}`;
  return { text, values, fencingToken: row.fence, resource: row.table, isCertain: false };
}

/**
 * Makes a statement like `fencedUpdate` that inserts the row if there is none, so that a new row has the token from the beginning.
 * @throws LockOptionsError for invalid names and values
 */
export function fencedUpsert(row: FencedRow): FencedStatement {
  const { values, table, column, where, set, fence } = readRow(row);
  const inserted = [...where, ...set, [column, fence] as const];
  const changes = [...set.map(([name]) => `${name} = EXCLUDED.${name}`), `${column} = ${fence}`];
  const text =
    `INSERT INTO ${table} AS existing (${inserted.map(([name]) => name).join(', ')}) ` +
    `VALUES (${inserted.map(([, value]) => value).join(', ')}) ` +
    `ON CONFLICT (${where.map(([name]) => name).join(', ')}) DO UPDATE SET ${changes.join(', ')} ` +
    `WHERE existing.${column} <= ${fence} RETURNING ${column}`;
  return { text, values, fencingToken: row.fence, resource: row.table, isCertain: true };
}

/** The source of a write's token: a `Lock`, or a statement of `fencedUpdate` or `fencedUpsert`. */
export interface FencedWrite extends Pick<StaleTokenDetails, 'key' | 'resource' | 'isCertain'> {
  readonly fencingToken: number;
}

/**
 * Throws unless a fenced write has changed exactly one row: if a write is for several rows, some may have been refused.
 * @param changedRows the number of rows that it changed or returned, as the driver reports
 * @param write the statement, or the lock if the statement is your own
 * @throws StaleTokenError if it changed no row
 * @throws LockOptionsError if the number is neither 1 nor 0
 */
export function assertFenced(changedRows: number | null | undefined, write: FencedWrite): void {
  checkFencingToken(write.fencingToken);
  if (changedRows === 1) return;
  if (changedRows !== 0) {
    const got = typeof changedRows === 'number' ? changedRows : changedRows === null ? 'null' : typeof changedRows;
    throw new LockOptionsError(
      `assertFenced needs the number of rows that were changed, which is 1 or 0 for a write to one row: got ${got}. ` +
        'Pass rows.length of a fenced statement, or the count of your driver.',
    );
  }
  const { fencingToken, key, resource, isCertain = false } = write;
  throw new StaleTokenError(fencingToken, { key, resource: resource && quoted(resource), isCertain });
}

/** Quoted names with the placeholders of their values. */
type Columns = (readonly [name: string, value: string])[];

function readRow(row: FencedRow) {
  if (!isRecord(row)) throw invalidOption('a fenced write', row, 'an object with table, where and fence');
  const { table, where, set = {}, fence, column = 'fence' } = row as FencedRow;
  if (typeof table !== 'string') throw invalidOption('table', table, 'the name of a table');
  checkFencingToken(fence);
  if (!isRecord(where) || Object.keys(where).length === 0) {
    throw new LockOptionsError('A fenced write needs a where that identifies one row: got none, which means all rows.');
  }
  const values: unknown[] = [];
  const placed = (columns: Record<string, unknown>): Columns =>
    Object.entries(columns).map(([name, value]) => {
      if (name === column) throw new LockOptionsError(`Only the fence writes the column "${column}": leave it out.`);
      if (value === undefined) throw new LockOptionsError(`The value of "${name}" in a fenced write is undefined.`);
      values.push(value);
      return [identifier(name), `$${values.length}`] as const;
    });
  for (const [name, value] of Object.entries(where)) {
    if (value === null) {
      throw new LockOptionsError(
        `"${name}" identifies the row of a fenced write and must not be null, which equals nothing.`,
      );
    }
    if (Object.hasOwn(set, name))
      throw new LockOptionsError(`"${name}" is both in where and in set of a fenced write.`);
  }
  return {
    values,
    table: table.split('.').map(identifier).join('.'),
    column: identifier(column),
    where: placed(where),
    set: placed(set),
    // The cast makes the statement fail for a text column, which would compare tokens as text.
    fence: `CAST($${values.push(fence)} AS bigint)`,
  };
}

const MAX_NAME_BYTES = 63;

/** Quotes a name. Refuses a long name: PostgreSQL would cut it without an error, and use another column. */
function identifier(name: string): string {
  if (name === '' || name.includes('\0') || Buffer.byteLength(name) > MAX_NAME_BYTES) {
    throw new LockOptionsError(
      `A name of a table or column must have 1 to ${MAX_NAME_BYTES} bytes: got ${JSON.stringify(name)}.`,
    );
  }
  return `"${name.replaceAll('"', '""')}"`;
}
