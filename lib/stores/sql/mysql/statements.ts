import { ACQUISITION, EXTENSION, RELEASE } from '../../../core/backend/lane.js';
import type { Row, SqlClient } from '../sql-client.js';
import { HalfDone } from '../sql-fault.js';
import type { Statement } from '../statement.js';
import type { MysqlClient, Written } from './mysql-source.js';

/** The order of statements that only read: after everything that other callers wait for. */
const LOOK = ACQUISITION + 1;
/** The maximum number of locks in one statement. */
const LOCKS_AT_ONCE = 100;
/** The number of attempts to change a row that another session has locked. */
const MAX_ATTEMPTS = 3;
/** The number of rows in a page of the table. */
const PAGE = 1_000;
/** How far a block of tokens may be ahead of the clock, in microseconds. */
const MAX_TOKEN_LEAD_US = 1_000;
/** The expiry of a released lock. */
const RELEASED = "'1970-01-01'";
/** In UTC, because local times are ambiguous for an hour each year. */
const NOW = 'UTC_TIMESTAMP(6)';
const us = (time: string) => `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${time})`;
const msBetween = (from: string, to: string) => `TIMESTAMPDIFF(MICROSECOND, ${from}, ${to}) / 1000`;
/** Fails as out of range from 2^53 on, where JavaScript integers are no longer exact. */
const exact = (token: string) => `(${token}) * 1024 DIV 1024`;
const later = (ms: string) => `DATE_ADD(${NOW}, INTERVAL ${ms} * 1000 MICROSECOND)`;
/** A fragment of a statement about a row `l`. @param p returns an argument: the key is `p(1)`, the owner `p(2)` */
type Fragment = (p: (argument: number) => string) => string;
/** The owner still holds the lock. */
const isOwned: Fragment = (p) => `l.resource_lock_value = ${p(2)} AND l.expires_at > ${NOW}`;
/** The owner still holds the lock, and its work has not ended. */
const isHeldOn: Fragment = (p) => `${isOwned(p)} AND l.is_kept = 0`;
/** Restarts the ttl of a lock, and records the number of waiting calls. */
const extended: Fragment = (p) => `l.update_time = ${NOW}, l.expires_at = ${later(p(3))}, l.calls_behind = ${p(4)}`;
const many = (count: number, each: string) => Array(count).fill(each).join(', ');

/** Returns the statement that creates the table. @param table the quoted name */
export function ddl(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (
  resource_lock_key   varbinary(2048) NOT NULL, -- UTF-8; no collation makes two keys one
  resource_lock_value varbinary(512) NOT NULL,  -- the holder, or the last one
  fence               bigint NOT NULL,          -- the last fencing token
  is_kept             tinyint NOT NULL,         -- 1: the work of the holder has ended, and the lock is kept until it expires
  calls_behind        int NOT NULL DEFAULT 0,   -- how many calls wait in the process of the holder, by its last extension
  acquired_at         datetime(6) NOT NULL,     -- UTC, as all times
  update_time         datetime(6) NOT NULL,
  expires_at          datetime(6) NOT NULL,     -- '1970-01-01' once it is released
  PRIMARY KEY (resource_lock_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`;
}

/** The statements on a lock table. */
export interface MysqlStatements {
  /** Arguments: keys, owners, ttls in ms, numbers of tokens to mint. Returns the row of each key, like `inspect`. */
  readonly acquire: Statement;
  /**
   * Arguments: keys, owners, ttls in ms, numbers of waiting calls. Like all changes it returns `is_done`, `is_held` (by any owner) and
   * `is_locked` (by another session).
   */
  readonly extend: Statement;
  /** Like `extend`. */
  readonly keep: Statement;
  /** Arguments: keys, owners. Returns the same as `extend`. */
  readonly release: Statement;
  /**
   * Arguments: keys, current owners, new owners, ttls in ms, whether to mint a token, whether a longer ttl stays. Returns the `token` of a
   * lock that the new owner has, otherwise the same as `extend`.
   */
  readonly transfer: Statement;
  readonly inspect: Statement;
  readonly scan: Statement;
  readonly sweep: Statement;
}

/**
 * Creates the statements. Each is a separate transaction, and changes only the rows that it can lock at once. So statements never wait
 * for each other, and a guarded lock delays no other lock. Only an INSERT may wait for a row, at most a second, since it has no SKIP
 * LOCKED. It holds no lock that another statement waits for.
 * @param table the quoted name
 */
export function mysqlStatements(table: string): MysqlStatements {
  return {
    acquire: new Acquisition(table),
    extend: new Change(table, {
      order: EXTENSION,
      set: extended,
      changesKept: false,
    }),
    keep: new Change(table, {
      order: RELEASE,
      set: (p) => `${extended(p)}, l.is_kept = 1`,
      changesKept: true,
    }),
    release: new Change(table, {
      order: RELEASE,
      set: () => `l.update_time = ${NOW}, l.expires_at = ${RELEASED}, l.is_kept = 0`,
      changesKept: true,
    }),
    transfer: new OwnerChange(table),
    inspect: { order: LOOK, most: LOCKS_AT_ONCE, run: (client, [keys]) => look(client, table, keys as string[]) },
    scan: { order: LOOK, most: 1, run: (client, [from, behind]) => scan(client, table, from, behind) },
    sweep: {
      order: LOOK,
      most: 1,
      run: (client, [behind, keepMs]) => sweep(client as MysqlClient, table, behind, keepMs),
    },
  };
}

/** The arguments of one operation. The first two are its key and its owner. */
type Ask<Key = string> = readonly [key: Key, owner: string, ...others: (number | Buffer)[]];

/** @param columns an array for each argument @returns the operations in the order of their keys */
function asksOf(columns: readonly unknown[]): Ask[] {
  const [keys] = columns as [string[]];
  const asks = keys.map((_, at) => (columns as unknown[][]).map((column) => column[at]) as unknown as Ask);
  return asks.sort(([one], [other]) => Buffer.compare(bytes(one), bytes(other)));
}

/** Encodes a text for the table, independently of the connection's character set. */
function bytes(text: unknown): Buffer {
  return Buffer.isBuffer(text) ? text : Buffer.from(String(text));
}

/** Returns the operations as a table `a` with their number `n`, and the columns p1, p2, and so on. */
function asTable(count: number, width: number): string {
  const named = ['n', ...Array.from({ length: width }, (_, at) => `p${at + 1}`)]
    .map((name) => `? AS ${name}`)
    .join(', ');
  return `(${[`SELECT ${named}`, ...Array<string>(count - 1).fill(`SELECT ${many(width + 1, '?')}`)].join(' UNION ALL ')}) AS a`;
}

/** The result of a change. */
interface Changed<Key> {
  readonly done: ReadonlySet<Ask<Key>>;
  /** The last value of LAST_INSERT_ID. */
  readonly lastId: number;
}

/** The statements of a change, and their values. */
interface ChangeText {
  /** Records the locked rows in `@mine`. */
  readonly lock: string;
  readonly update: string;
  readonly values: readonly unknown[];
}

/**
 * Changes the rows that match a condition and are not locked by another session, in one transaction and one message. It reads a row
 * without locking it, then locks it if it is free, and checks the condition again. A locking read would wait for at least a second. The
 * locked rows are recorded in a variable, because SKIP LOCKED in a subquery of UPDATE crashes MariaDB 10.11.
 * @param set the new values; undefined to delete the rows
 * @param of the condition
 */
async function change<Key extends string | Buffer>(
  client: MysqlClient,
  table: string,
  asks: readonly Ask<Key>[],
  set: Fragment | undefined,
  of: Fragment,
): Promise<Changed<Key>> {
  const isOne = asks.length === 1;
  const { lock, update, values } = isOne ? changeOfOne(table, asks[0]!, set, of) : changeOfMany(table, asks, set, of);
  const texts = ['START TRANSACTION', lock, update, 'SELECT @mine AS mine, @@GLOBAL.read_only AS read_only', 'COMMIT'];
  let answers: unknown[];
  try {
    answers = await client.write(texts.join(';\n'), values);
  } catch (error) {
    // It has changed nothing, and may still be open.
    await client.write('ROLLBACK', []).catch(() => {});
    throw error;
  }
  const [, , written, [state]] = answers as [Written, Written, Written, [Row]];
  if (!isOff(state.read_only)) throw new HalfDone(new ReadOnlyServer());
  const done = isOne ? asks.slice(0, written.affectedRows) : numbered(asks, state);
  return { done: new Set(done), lastId: written.insertId };
}

/** The server was demoted. It still accepts writes of privileged users, but others use the locks of the new primary. */
class ReadOnlyServer extends Error {
  readonly code = 'ER_OPTION_PREVENTS_STATEMENT';

  constructor() {
    super('it is read-only');
  }
}

/** Whether a variable of the server is off. Since MariaDB 12 there are several words for "on". */
export function isOff(value: unknown): boolean {
  return ['0', 'OFF'].includes(String(value).toUpperCase());
}

function changeOfMany(
  table: string,
  asks: readonly Ask<unknown>[],
  set: Fragment | undefined,
  of: Fragment,
): ChangeText {
  const asked = asTable(asks.length, asks[0]!.length);
  const values = asks.flatMap((ask, at) => [at + 1, ...valuesOf(ask)]);
  const rows = `STRAIGHT_JOIN ${table} AS l ON l.resource_lock_key = a.p1`;
  const p = (argument: number) => `a.p${argument}`;
  return {
    lock: `SELECT GROUP_CONCAT(a.n) INTO @mine FROM (SELECT a.* FROM ${asked} ${rows} WHERE ${of(p)} LIMIT ${LOCKS_AT_ONCE}) AS a
${rows} WHERE ${of(p)} FOR UPDATE SKIP LOCKED`,
    update: `${updating(`${asked} ${rows}`, set?.(p))} WHERE FIND_IN_SET(a.n, @mine)`,
    values: [...values, ...values],
  };
}

/** The same for one row, without derived tables, which would double the time. `@mine` is the key, or NULL for none. */
function changeOfOne(table: string, ask: Ask<unknown>, set: Fragment | undefined, of: Fragment): ChangeText {
  const given = valuesOf(ask);
  const values: unknown[] = []; // in the order of their placeholders
  const p = (argument: number) => {
    values.push(given[argument - 1]);
    return '?';
  };
  const rowOf = (key: string) => `FROM ${table} AS l WHERE l.resource_lock_key = ${key} AND ${of(p)}`;
  return {
    lock: `SELECT MAX(l.resource_lock_key) INTO @mine ${rowOf(`(SELECT l.resource_lock_key ${rowOf(p(1))})`)}
FOR UPDATE SKIP LOCKED`,
    update: `${updating(`${table} AS l`, set?.(p))} WHERE l.resource_lock_key = @mine`,
    values,
  };
}

/** @param set undefined to delete the rows of `l` */
function updating(tables: string, set: string | undefined): string {
  return set === undefined ? `DELETE l FROM ${tables}` : `UPDATE ${tables} SET ${set}`;
}

function valuesOf([key, owner, ...others]: Ask<unknown>): unknown[] {
  return [bytes(key), bytes(owner), ...others];
}

/** @param mine a text with the numbers of operations, from 1 */
function numbered<One>(asks: readonly One[], { mine }: Row): One[] {
  const numbers = (mine ?? '') as string;
  return Array.from(numbers.matchAll(/\d+/g), ([n]) => asks[Number(n) - 1]!);
}

/** Runs a later part of an operation. @throws HalfDone, because an earlier part may have taken effect */
async function afterChange<T>(part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch (error) {
    throw new HalfDone(error);
  }
}

/**
 * Acquires free locks: existing rows by a change, missing rows by an INSERT. It reads the result from the rows, so a repeated attempt
 * finds that it already has the lock.
 *
 * A token is the time of the server in microseconds. If the last token has reached that time, a single token is minted: the last one plus
 * one. Unused tokens of a block would push the fence ahead of the clock, and a deleted row would lose them.
 */
class Acquisition implements Statement {
  readonly order = ACQUISITION;
  readonly most = LOCKS_AT_ONCE;

  constructor(private readonly table: string) {}

  async run(client: MysqlClient, columns: readonly unknown[]): Promise<Row[]> {
    const asks = asksOf(columns);
    const fence: Fragment = (p) =>
      `IF(${us(NOW)} > l.fence, ${us(NOW)} + LEAST(${MAX_TOKEN_LEAD_US}, ${p(4)}) - 1, ${exact('l.fence + 1')})`;
    // The answer contains the value of LAST_INSERT_ID.
    const set: Fragment = (p) =>
      `l.resource_lock_value = ${p(2)}, l.fence = LAST_INSERT_ID(${fence(p)}), l.is_kept = 0, l.calls_behind = 0, l.acquired_at = ${NOW},
  l.update_time = ${NOW}, l.expires_at = ${later(p(3))}`;
    // Or it belongs to this owner, if the attempt has run before.
    const of: Fragment = (p) => `(l.expires_at <= ${NOW} OR (l.resource_lock_value = ${p(2)} AND l.is_kept = 0))`;
    const { done, lastId } = await change(client, this.table, asks, set, of);
    const [[key, owner, ttlMs, turns]] = asks as [Ask];
    if (done.size === 1 && asks.length === 1 && turns === 1)
      return [{ key, holder: owner, remaining: ttlMs, fence: lastId, is_kept: 0 }];
    return afterChange(async () => {
      const keys = asks.map(([key]) => key);
      let rows = await look(client, this.table, keys);
      const free = new Set(rows.filter(({ remaining }) => Number(remaining) <= 0).map(({ key }) => key));
      if (free.size > 0) {
        // Another session has locked their rows: briefly, as by a late release, or as a guard.
        const missed = asks.filter(([key]) => free.has(key));
        await change(client, this.table, missed, set, of);
        rows = await look(client, this.table, keys);
      }
      const known = new Set(rows.map(({ key }) => key));
      const absent = asks.filter(([key]) => !known.has(key));
      if (absent.length === 0) return rows;
      await this.#insert(client, absent);
      const taken = absent.map(([key]) => key);
      return [...rows, ...(await look(client, this.table, taken))];
    });
  }

  /** The first INSERT acquires the lock. */
  async #insert(client: MysqlClient, asks: readonly Ask[]): Promise<void> {
    const row = `(?, ?, ${us(NOW)} + LEAST(${MAX_TOKEN_LEAD_US}, ?) - 1, 0, 0, ${NOW}, ${NOW}, ${later('?')})`;
    const text = `
INSERT INTO ${this.table} (resource_lock_key, resource_lock_value, fence, is_kept, calls_behind, acquired_at, update_time, expires_at)
VALUES ${many(asks.length, row)} ON DUPLICATE KEY UPDATE resource_lock_key = resource_lock_key`;
    const values = asks.flatMap(([key, owner, ttlMs, turns]) => [bytes(key), bytes(owner), turns, ttlMs]);
    await client.write(text, values);
  }
}

interface ChangeSettings {
  readonly order: number;
  readonly set: Fragment;
  /** Whether it also changes kept locks. */
  readonly changesKept: boolean;
}

/** Changes locks that their owners still hold. */
class Change implements Statement {
  readonly order: number;
  readonly most = LOCKS_AT_ONCE;
  readonly #of: Fragment;

  constructor(
    private readonly table: string,
    private readonly settings: ChangeSettings,
  ) {
    this.order = settings.order;
    this.#of = settings.changesKept ? isOwned : isHeldOn;
  }

  async run(client: MysqlClient, columns: readonly unknown[]): Promise<Row[]> {
    const rows: Row[] = [];
    const left = await this.#change(client, asksOf(columns), rows);
    return left.length === 0 ? rows : afterChange(() => this.#changeLeft(client, left, rows));
  }

  /** @param rows receives the results of changed locks @returns the other operations */
  async #change(client: MysqlClient, asks: readonly Ask[], rows: Row[]): Promise<Ask[]> {
    const { done } = await change(client, this.table, asks, this.settings.set, this.#of);
    for (const [key] of done) rows.push({ key, is_done: 1 });
    return asks.filter((ask) => !done.has(ask));
  }

  /** Retries unchanged locks that their owners still hold: another session had locked the rows, briefly or as a guard. */
  async #changeLeft(client: MysqlClient, asks: readonly Ask[], rows: Row[]): Promise<Row[]> {
    let left = asks;
    for (let attempt = 1; ; attempt++) {
      const keys = left.map(([key]) => key);
      const seen = new Map((await look(client, this.table, keys)).map((row) => [row.key, row]));
      const stillOwned = left.filter(([key, owner]) => this.#mayChange(seen.get(key), owner));
      for (const [key] of left.filter((ask) => !stillOwned.includes(ask)))
        rows.push({ key, is_done: 0, is_held: Number(isHeld(seen.get(key))) });
      if (stillOwned.length === 0) return rows;
      if (attempt === MAX_ATTEMPTS)
        return [...rows, ...stillOwned.map(([key]) => ({ key, is_done: 0, is_held: 1, is_locked: 1 }))];
      left = await this.#change(client, stillOwned, rows);
      if (left.length === 0) return rows;
    }
  }

  #mayChange(row: Row | undefined, owner: string): boolean {
    return isHeld(row) && row!.holder === owner && (this.settings.changesKept || Number(row!.is_kept) === 0);
  }
}

function isHeld(row: Row | undefined): boolean {
  return row !== undefined && Number(row.remaining) > 0;
}

/** The arguments of a transfer, and its owners as texts. */
interface AskedTransfer {
  readonly ask: Ask;
  readonly from: string;
  readonly to: string;
}

/** Gives locks new owners, if the expected owners hold them. It reads the result from the rows, so a repeated transfer succeeds. */
class OwnerChange implements Statement {
  readonly order = RELEASE;
  readonly most = LOCKS_AT_ONCE;

  constructor(private readonly table: string) {}

  async run(client: MysqlClient, columns: readonly unknown[]): Promise<Row[]> {
    const asks = asksOf(columns) as unknown as [
      key: string,
      from: string,
      to: string,
      ttlMs: number,
      mints: boolean,
      atLeast: boolean,
    ][];
    const asked = asks.map(([key, from, to, ttlMs, mints, atLeast]): AskedTransfer => {
      return { from, to, ask: [key, from, bytes(to), ttlMs, Number(mints), Number(atLeast)] };
    });
    const done = await this.#change(client, ...asked);
    return afterChange(async () => {
      const rows: Row[] = [];
      for (const each of asked) rows.push(await this.#resultOf(client, each, done.has(each.ask)));
      return rows;
    });
  }

  /** Returns the result of a transfer. @param isNew whether this call did the transfer; otherwise the ttl restarts */
  async #resultOf(client: MysqlClient, asked: AskedTransfer, isNew: boolean): Promise<Row> {
    const { ask, from, to } = asked;
    const [key, , owner, ttlMs, , atLeast] = ask;
    for (let attempt = 1; ; attempt++) {
      const [row] = await look(client, this.table, [key]);
      const is_held = Number(isHeld(row));
      const isActive = isHeld(row) && Number(row!.is_kept) === 0;
      if (isActive && row!.holder === to) {
        if (!isNew) await this.#change(client, { ...asked, ask: [key, to, owner!, ttlMs!, 0, atLeast!] });
        return { key, token: row!.fence, is_held };
      }
      if (!isActive || row!.holder !== from) return { key, is_held };
      // Another session had locked the row, briefly or as a guard.
      if (attempt === MAX_ATTEMPTS) return { key, is_held, is_locked: 1 };
      await this.#change(client, asked);
    }
  }

  /** @returns the completed operations */
  async #change(client: MysqlClient, ...asked: readonly AskedTransfer[]): Promise<ReadonlySet<Ask>> {
    const set: Fragment = (p) =>
      `l.fence = IF(${p(5)} = 1, GREATEST(${exact('l.fence + 1')}, ${us(NOW)}), l.fence), l.acquired_at = IF(${p(5)} = 1, ${NOW}, l.acquired_at),
  l.resource_lock_value = ${p(3)}, l.update_time = ${NOW}, l.calls_behind = 0,
  l.expires_at = GREATEST(${later(p(4))}, IF(${p(6)} = 1, l.expires_at, ${NOW}))`;
    const asks = asked.map(({ ask }) => ask);
    return (await change(client, this.table, asks, set, isHeldOn)).done;
  }
}

/** Reads the last committed state of rows. */
async function look(client: SqlClient, table: string, keys: readonly string[]): Promise<Row[]> {
  const text = `
SELECT resource_lock_key AS \`key\`, resource_lock_value AS holder, fence, is_kept, calls_behind, ${us('acquired_at')} AS acquired_us,
  ${msBetween(NOW, 'expires_at')} AS remaining, ${msBetween('acquired_at', NOW)} AS held_for
FROM ${table} WHERE resource_lock_key IN (${many(keys.length, '?')})`;
  const rows = await client.query({ name: 'look', text }, keys.map(bytes));
  return rows.map((row) => ({ ...row, key: String(row.key), holder: String(row.holder) }));
}

async function scan(client: SqlClient, table: string, from: unknown, behind: unknown): Promise<Row[]> {
  const text = `
SELECT resource_lock_key AS \`key\`, expires_at > ${NOW} AS is_held FROM ${table}
WHERE resource_lock_key >= ? AND resource_lock_key > ? ORDER BY resource_lock_key LIMIT ${PAGE}`;
  const rows = await client.query({ name: 'scan', text }, [bytes(from), bytes(behind)]);
  const held = rows.filter(({ is_held }) => Number(is_held) === 1).map(({ key }) => String(key));
  return [{ last: lastOf(rows), scanned: rows.length, held: JSON.stringify(held) }];
}

/**
 * Deletes long-unused rows, except rows that another session has locked. A new row of the same key starts its tokens at the clock, so a
 * row with tokens ahead of the clock stays.
 */
async function sweep(client: MysqlClient, table: string, behind: unknown, keepMs: unknown): Promise<Row[]> {
  const isUnused = (of: string, ms: string) =>
    `GREATEST(${of}update_time, ${of}expires_at) < DATE_SUB(${NOW}, INTERVAL ${ms} * 1000 MICROSECOND) AND ${of}fence < ${us(NOW)}`;
  const text = `
SELECT resource_lock_key AS \`key\`, ${isUnused('', '?')} AS is_unused FROM ${table}
WHERE resource_lock_key > ? ORDER BY resource_lock_key LIMIT ${PAGE}`;
  const rows = await client.query({ name: 'sweep', text }, [keepMs, bytes(behind)]);
  const unused = rows
    .filter((row) => Number(row.is_unused) === 1)
    .map(({ key }): Ask<Buffer> => [key as Buffer, '', Number(keepMs)]);
  // Some may be in use by now, so the change checks them again after locking them.
  for (let at = 0; at < unused.length; at += LOCKS_AT_ONCE)
    await change(client, table, unused.slice(at, at + LOCKS_AT_ONCE), undefined, (p) => isUnused('l.', p(3)));
  return [{ last: lastOf(rows), scanned: rows.length }];
}

/** Returns the last key of a full page. Another program may have written keys that are not UTF-8, which must not repeat a page. */
function lastOf(rows: readonly Row[]): string | null {
  return rows.length < PAGE ? null : String(rows.at(-1)!.key);
}

/** Fails outside a transaction, where a guard would end with its statement: a savepoint does not survive there. */
export const IN_TRANSACTION = ['SAVEPOINT nest_redis_lock_guard', 'RELEASE SAVEPOINT nest_redis_lock_guard'];
/** Matches the error of a guard: the number of the lock that is not held, from 1, plus 20 000 if another owner holds it, otherwise 10 000. */
export const NOT_GUARDED = /out of range in '?exp\(\(?(?:1|(?<stolen>2))(?<number>\d{4}) \+/i;

/**
 * Guards locks for the current transaction: until it ends, no other owner can acquire them, and they cannot be extended, because both change
 * the row. The statement fails if a lock has another owner by now: EXP of more than 709 is out of range. An expired lease does not matter
 * while no other owner has acquired the lock.
 *
 * A locking read sees the latest state at every isolation level, and FOR UPDATE keeps the row locked even after XA PREPARE. The statement
 * runs on a connection of the application, with any driver and character set. So each placeholder occurs once, in order, and texts are
 * hexadecimal.
 */
export function guardOf(table: string, count: number): string {
  const numbers = Array.from({ length: count }, (_, at) => at + 1);
  const [first, ...others] = numbers;
  // The error shows the expression as written, not its value.
  const failing = (from: number) =>
    `CASE ask.n ${numbers.map((n) => `WHEN ${n} THEN EXP(${from + n} + ask.n)`).join(' ')} END`;
  const asked = [
    `SELECT ${first} AS n, UNHEX(?) AS k, UNHEX(?) AS o, ? AS f`,
    ...others.map((n) => `SELECT ${n}, UNHEX(?), UNHEX(?), ?`),
  ];
  return `
SELECT ask.n, CASE WHEN l.resource_lock_value = ask.o AND l.fence >= ask.f AND l.expires_at > ${RELEASED} THEN 1
  WHEN l.resource_lock_value <> ask.o AND l.expires_at > ${NOW} THEN ${failing(20_000)}
  ELSE ${failing(10_000)} END AS is_guarded
FROM (${asked.join(' UNION ALL ')}) AS ask LEFT JOIN ${table} AS l ON l.resource_lock_key = ask.k
FOR UPDATE`;
}
