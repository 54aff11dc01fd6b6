import { ACQUISITION, EXTENSION, RELEASE } from '../../../core/backend/lane.js';
import type { Row, SqlClient } from '../sql-client.js';
import { HalfDone } from '../sql-fault.js';
import type { Statement } from '../statement.js';
import type { MysqlClient, Written } from './mysql-source.js';

/** Behind what others wait for: what is only looked at. */
const LOOK = ACQUISITION + 1;
/** How many locks one statement is for at most. */
const LOCKS_AT_ONCE = 100;
/** How often a change is tried whose row another session has just locked. */
const MAX_ATTEMPTS = 3;
/** How many rows a page of the table has. */
const PAGE = 1_000;
/** How far a block of tokens may reach ahead of the clock, in microseconds. */
const MAX_TOKEN_LEAD_US = 1_000;
/** When a lock that was given back has expired. */
const RELEASED = "'1970-01-01'";
/** UTC, and in microseconds since 1970: a local time is ambiguous for an hour each year. */
const NOW = 'UTC_TIMESTAMP(6)';
const us = (time: string) => `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${time})`;
const msBetween = (from: string, to: string) => `TIMESTAMPDIFF(MICROSECOND, ${from}, ${to}) / 1000`;
/** Fails, as out of range, from 2^53 on: JavaScript does not count exactly there. */
const exact = (token: string) => `(${token}) * 1024 DIV 1024`;
const later = (ms: string) => `DATE_ADD(${NOW}, INTERVAL ${ms} * 1000 MICROSECOND)`;
/** A part of a statement about a row `l`. @param p is what was asked for: the key is `p(1)`, the owner `p(2)` */
type Fragment = (p: (argument: number) => string) => string;
/** A lock that its owner still holds. */
const isOwned: Fragment = (p) => `l.resource_lock_value = ${p(2)} AND l.expires_at > ${NOW}`;
/** The same, and its work has not ended. */
const isHeldOn: Fragment = (p) => `${isOwned(p)} AND l.is_kept = 0`;
/** Starts the ttl of a lock anew, and writes down how many calls wait behind it. */
const extended: Fragment = (p) => `l.update_time = ${NOW}, l.expires_at = ${later(p(3))}, l.calls_behind = ${p(4)}`;
const many = (count: number, each: string) => Array(count).fill(each).join(', ');

/** What creates the table. @param table quoted */
export function ddl(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (
  resource_lock_key   varbinary(2048) NOT NULL, -- UTF-8; no collation makes two keys one
  resource_lock_value varbinary(512) NOT NULL,  -- the holder, or the last one
  fence               bigint NOT NULL,          -- the last fencing token
  is_kept             tinyint NOT NULL,         -- 1: the work of the holder has ended, and the lock stands until it expires
  calls_behind        int NOT NULL DEFAULT 0,   -- how many calls wait in the process of the holder, by its last extension
  acquired_at         datetime(6) NOT NULL,     -- UTC, as all times
  update_time         datetime(6) NOT NULL,
  expires_at          datetime(6) NOT NULL,     -- '1970-01-01' once it is released
  PRIMARY KEY (resource_lock_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`;
}

/** The statements on a lock table. */
export interface MysqlStatements {
  /** Its arguments: keys, owners, ttls in ms, how many tokens to mint. It answers as `inspect` does, for each key. */
  readonly acquire: Statement;
  /**
   * Arguments: keys, owners, ttls in ms, how many calls wait in the process of the owner. It answers as all changes do: `is_done`, `is_held`
   * by whomever, `is_locked` by another session.
   */
  readonly extend: Statement;
  /** As `extend`. */
  readonly keep: Statement;
  /** Arguments: keys, owners. It answers as `extend` does. */
  readonly release: Statement;
  /**
   * Arguments: keys, owners that have the locks, owners that get them, ttls in ms, whether a token is minted. It answers with the `token` of a
   * lock that the new owner has, or as `extend` does.
   */
  readonly transfer: Statement;
  readonly inspect: Statement;
  readonly scan: Statement;
  readonly sweep: Statement;
}

/**
 * Makes the statements. Each is a transaction of its own, and changes the rows that it can lock at once. So no two of them wait for each
 * other, and a transaction that guards a lock holds up no other. Only an insertion may wait for a row, as it knows no SKIP LOCKED: for a
 * second at most, and it holds nothing that one of the others waits for.
 * @param table quoted
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

/** What one operation asks for: the first two values are its key and its owner. */
type Ask<Key = string> = readonly [key: Key, owner: string, ...others: (number | Buffer)[]];

/** @param columns an array for each argument @returns the operations, in the order of their keys */
function asksOf(columns: readonly unknown[]): Ask[] {
  const [keys] = columns as [string[]];
  const asks = keys.map((_, at) => (columns as unknown[][]).map((column) => column[at]) as unknown as Ask);
  return asks.sort(([one], [other]) => Buffer.compare(bytes(one), bytes(other)));
}

/** A text as the table has it: what a connection's character set would make of it does not matter. */
function bytes(text: unknown): Buffer {
  return Buffer.isBuffer(text) ? text : Buffer.from(String(text));
}

/** The operations as a table `a` with the columns n, their number, p1, p2, and so on. */
function asTable(count: number, width: number): string {
  const named = ['n', ...Array.from({ length: width }, (_, at) => `p${at + 1}`)]
    .map((name) => `? AS ${name}`)
    .join(', ');
  return `(${[`SELECT ${named}`, ...Array<string>(count - 1).fill(`SELECT ${many(width + 1, '?')}`)].join(' UNION ALL ')}) AS a`;
}

/** What was done of what was asked for. */
interface Changed<Key> {
  readonly done: ReadonlySet<Ask<Key>>;
  /** What LAST_INSERT_ID was given last. */
  readonly lastId: number;
}

/** A part of the statements of a change, and its values. */
interface ChangeText {
  /** Notes in `@mine` which rows it has locked. */
  readonly lock: string;
  readonly update: string;
  readonly values: readonly unknown[];
}

/**
 * Changes the rows of which something holds, and that are not locked by another session, in one transaction and one message. A row is looked
 * at without a lock first, then locked if nobody else has, and judged again: MySQL would lock it to look at it, and wait for a second at
 * least. What was locked stays at the server: in a subquery of UPDATE, SKIP LOCKED crashes MariaDB 10.11.
 * @param set what is set; undefined: the rows are deleted
 * @param of whether a row is changed
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
    // It has changed nothing, and may be open; the next transaction would end it, too.
    await client.write('ROLLBACK', []).catch(() => {});
    throw error;
  }
  const [, , written, [state]] = answers as [Written, Written, Written, [Row]];
  if (!isOff(state.read_only)) throw new HalfDone(new ReadOnlyServer());
  const done = isOne ? asks.slice(0, written.affectedRows) : numbered(asks, state);
  return { done: new Set(done), lastId: written.insertId };
}

/** A server that was demoted: it still lets a user with further rights write, and others have the same locks elsewhere. */
class ReadOnlyServer extends Error {
  readonly code = 'ER_OPTION_PREVENTS_STATEMENT';

  constructor() {
    super('it only reads');
  }
}

/** Whether a variable of the server is off. From MariaDB 12 on there are several words for "on". */
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

/** The same for one row, found by its key, without the tables, which would take as long as all else. `@mine` is the key, or NULL, which no row has. */
function changeOfOne(table: string, ask: Ask<unknown>, set: Fragment | undefined, of: Fragment): ChangeText {
  const given = valuesOf(ask);
  const values: unknown[] = []; // in the order in which the text names them
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

/** @param set undefined: the rows of `l` are deleted */
function updating(tables: string, set: string | undefined): string {
  return set === undefined ? `DELETE l FROM ${tables}` : `UPDATE ${tables} SET ${set}`;
}

function valuesOf([key, owner, ...others]: Ask<unknown>): unknown[] {
  return [bytes(key), bytes(owner), ...others];
}

/** @param mine the numbers of operations, from 1, in one text */
function numbered<One>(asks: readonly One[], { mine }: Row): One[] {
  const numbers = (mine ?? '') as string;
  return Array.from(numbers.matchAll(/\d+/g), ([n]) => asks[Number(n) - 1]!);
}

/** Runs a part of an operation whose earlier part has taken effect. @throws HalfDone */
async function afterChange<T>(part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch (error) {
    throw new HalfDone(error);
  }
}

/**
 * Takes locks that are free: those that were used before by a change, those without a row by an insert. What came of it is read from the
 * rows, so an attempt that is repeated finds that it has the lock.
 *
 * A token is the time of the server in microseconds, or one more than the last one where that has reached the time; then one is minted,
 * however many are asked for: blocks of which few are used must not drive the fence ahead of the clock, with which it goes on when the
 * row is deleted.
 */
class Acquisition implements Statement {
  readonly order = ACQUISITION;
  readonly most = LOCKS_AT_ONCE;

  constructor(private readonly table: string) {}

  async run(client: MysqlClient, columns: readonly unknown[]): Promise<Row[]> {
    const asks = asksOf(columns);
    const fence: Fragment = (p) =>
      `IF(${us(NOW)} > l.fence, ${us(NOW)} + LEAST(${MAX_TOKEN_LEAD_US}, ${p(4)}) - 1, ${exact('l.fence + 1')})`;
    // What LAST_INSERT_ID is given comes with the answer.
    const set: Fragment = (p) =>
      `l.resource_lock_value = ${p(2)}, l.fence = LAST_INSERT_ID(${fence(p)}), l.is_kept = 0, l.calls_behind = 0, l.acquired_at = ${NOW},
  l.update_time = ${NOW}, l.expires_at = ${later(p(3))}`;
    // An attempt that may have run is sent again.
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
        // Another session has just locked their rows, such as by a release that came too late; or a guard has.
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

  /** Who comes first has the lock. */
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
  /** Whether also of a lock whose work has ended. */
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

  /** @param rows gets those that were changed @returns the others */
  async #change(client: MysqlClient, asks: readonly Ask[], rows: Row[]): Promise<Ask[]> {
    const { done } = await change(client, this.table, asks, this.settings.set, this.#of);
    for (const [key] of done) rows.push({ key, is_done: 1 });
    return asks.filter((ask) => !done.has(ask));
  }

  /** Tries again what was not changed although its owner holds it: another session had locked its row, for a moment unless it is a guard. */
  async #changeLeft(client: MysqlClient, asks: readonly Ask[], rows: Row[]): Promise<Row[]> {
    let left = asks;
    for (let attempt = 1; ; attempt++) {
      const keys = left.map(([key]) => key);
      const seen = new Map((await look(client, this.table, keys)).map((row) => [row.key, row]));
      const theirs = left.filter(([key, owner]) => this.#mayChange(seen.get(key), owner));
      for (const [key] of left.filter((ask) => !theirs.includes(ask)))
        rows.push({ key, is_done: 0, is_held: Number(isHeld(seen.get(key))) });
      if (theirs.length === 0) return rows;
      if (attempt === MAX_ATTEMPTS)
        return [...rows, ...theirs.map(([key]) => ({ key, is_done: 0, is_held: 1, is_locked: 1 }))];
      left = await this.#change(client, theirs, rows);
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

/** What a transfer asks for, and the owners in it as texts. */
interface AskedTransfer {
  readonly ask: Ask;
  readonly from: string;
  readonly to: string;
}

/** Gives locks other owners, if certain ones have them. What came of it is read from the rows, so one that is repeated finds that it was done. */
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
      for (const each of asked) rows.push(await this.#judged(client, each, done.has(each.ask)));
      return rows;
    });
  }

  /** @param isNew whether it was done just now; the ttl of one that was done before starts anew */
  async #judged(client: MysqlClient, asked: AskedTransfer, isNew: boolean): Promise<Row> {
    const { ask, from, to } = asked;
    const [key, , owner, ttlMs, , atLeast] = ask;
    for (let attempt = 1; ; attempt++) {
      const [row] = await look(client, this.table, [key]);
      const is_held = Number(isHeld(row));
      const isMeant = isHeld(row) && Number(row!.is_kept) === 0;
      if (isMeant && row!.holder === to) {
        if (!isNew) await this.#change(client, { ...asked, ask: [key, to, owner!, ttlMs!, 0, atLeast!] });
        return { key, token: row!.fence, is_held };
      }
      if (!isMeant || row!.holder !== from) return { key, is_held };
      // Another session had locked its row, for a moment unless it is a guard.
      if (attempt === MAX_ATTEMPTS) return { key, is_held, is_locked: 1 };
      await this.#change(client, asked);
    }
  }

  /** @returns what it has done */
  async #change(client: MysqlClient, ...asked: readonly AskedTransfer[]): Promise<ReadonlySet<Ask>> {
    const set: Fragment = (p) =>
      `l.fence = IF(${p(5)} = 1, GREATEST(${exact('l.fence + 1')}, ${us(NOW)}), l.fence), l.acquired_at = IF(${p(5)} = 1, ${NOW}, l.acquired_at),
  l.resource_lock_value = ${p(3)}, l.update_time = ${NOW}, l.calls_behind = 0,
  l.expires_at = GREATEST(${later(p(4))}, IF(${p(6)} = 1, l.expires_at, ${NOW}))`;
    const asks = asked.map(({ ask }) => ask);
    return (await change(client, this.table, asks, set, isHeldOn)).done;
  }
}

/** Reads rows, which are as they were last committed. */
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
 * Deletes rows that nobody has used for long, but those that another session has locked: it uses them. A new row of the same key begins with
 * the clock, so a row whose tokens are ahead of that stays, as after the clock was set back.
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
  // They may be taken by now: they are judged once they are locked.
  for (let at = 0; at < unused.length; at += LOCKS_AT_ONCE)
    await change(client, table, unused.slice(at, at + LOCKS_AT_ONCE), undefined, (p) => isUnused('l.', p(3)));
  return [{ last: lastOf(rows), scanned: rows.length }];
}

/** Where the next page begins. A key that somebody else has put there and that is no UTF-8 must not lead back to the same page. */
function lastOf(rows: readonly Row[]): string | null {
  return rows.length < PAGE ? null : String(rows.at(-1)!.key);
}

/** Fails outside of a transaction, in which a guard would end with its statement: the second one releases what the first one made. */
export const IN_TRANSACTION = ['SAVEPOINT nest_redis_lock_guard', 'RELEASE SAVEPOINT nest_redis_lock_guard'];
/** What the error of a guard says of a lock that is not held: 10 000 more than its number among those that are guarded, from 1; 20 000 more if another owner holds it. */
export const NOT_GUARDED = /out of range in '?exp\(\(?(?:1|(?<stolen>2))(?<number>\d{4}) \+/i;

/**
 * Keeps locks for the transaction that it runs in: nobody becomes their holder until that has ended, as who does changes the row. Nor can they
 * be extended meanwhile. One that is not its owner's any more makes it fail: EXP of more than 709 is no number. Whether its lease
 * has ended does not matter: nobody has taken it since.
 *
 * A locking read sees the latest state at each level of isolation, and FOR UPDATE keeps the row locked after XA PREPARE, too. It runs on a connection of the application, by whatever driver and in
 * whatever character set: its placeholders stand in order, each once, and texts are in hexadecimal digits.
 */
export function guardOf(table: string, count: number): string {
  const numbers = Array.from({ length: count }, (_, at) => at + 1);
  const [first, ...others] = numbers;
  // The error shows what is written here, not the number that it stands for.
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
