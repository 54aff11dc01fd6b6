import { ACQUISITION, EXTENSION, RELEASE } from '../../../core/backend/lane.js';
import { GRANT_TTL_MS } from '../../node/messages.js';
import type { Row, SqlClient } from '../sql-client.js';
import type { Statement } from '../statement.js';
import { stored } from '../stored-key.js';

/** The order of statements that only read: after everything that other callers wait for. */
const LOOK = ACQUISITION + 1;
/** The maximum number of locks in one statement. */
const LOCKS_AT_ONCE = 100;
/** The number of rows in a page. Reading one takes a few milliseconds, during which the connection serves no lock. */
export const PAGE = 1_000;
/**
 * A waiting process polls once a second. A process that was silent for this long while another polled is skipped, in microseconds. The
 * time equals that of an unconfirmed grant, so several processes that died together cost a single such grant.
 */
const SILENT_US = GRANT_TTL_MS * 1_000;
/** A living process is never silent this long, unless the server was unavailable. Then all return within a second. In microseconds. */
const DEAD_US = 5 * SILENT_US;
/** How far a block of tokens may be ahead of the clock, in microseconds. */
const MAX_TOKEN_LEAD_US = 1_000;

const us = (time: string) => `floor(extract(epoch FROM ${time}) * 1000000)::bigint`;
/** Returned as text, because the digits of a float8 depend on the settings of session and driver. Works even for `infinity`. */
const ms = (from: string, to: string) => `((extract(epoch FROM ${to}) - extract(epoch FROM ${from})) * 1000)::text`;
/** Fails as out of range from 2^53 on, where JavaScript integers are no longer exact. */
const exact = (token: string) => `(${token}) * 1024 / 1024`;
/** Statements skip rows that another session has locked: otherwise all locks of the process would wait. */
const LOCKING = 'FOR NO KEY UPDATE OF l SKIP LOCKED';
const milliseconds = (count: string) => `${count} * interval '1 millisecond'`;
/** Reads the clock for each row after locking it, because the statement may have waited. */
const readNow = (row: string) =>
  `CROSS JOIN LATERAL (SELECT clock_timestamp() AS now WHERE ${row} IS NOT NULL OFFSET 0) AS clock`;
/** The parts of a place in the queue. */
const part = (at: number) => (entry: string) => `split_part(${entry}, ' ', ${at})`;
const [turns, ticket] = [part(2), part(3)];
const number = (entry: string) => `${part(1)(entry)}::bigint`;
/** The last poll of its process, by the clock of the server in microseconds. */
const sign = (entry: string) => `${part(4)(entry)}::bigint`;
/** The number of waiting calls of its process; empty if unknown. */
const calls = part(5);

export class PostgresStatement implements Statement {
  constructor(
    readonly name: string,
    readonly text: string,
    readonly order: number,
    readonly most = 1,
  ) {}

  run(client: SqlClient, values: readonly unknown[]): Promise<Row[]> {
    return client.query(this, values);
  }
}

/** The statements on a lock table. */
export interface PostgresStatements {
  readonly take: PostgresStatement;
  readonly give: PostgresStatement;
  readonly turn: PostgresStatement;
  readonly giveAndTurn: PostgresStatement;
  readonly extend: PostgresStatement;
  readonly keep: PostgresStatement;
  readonly transfer: PostgresStatement;
  readonly inspect: PostgresStatement;
  readonly scan: PostgresStatement;
  readonly notify: PostgresStatement;
  readonly sweep: PostgresStatement;
}

/** Returns the statement that creates the table. @param table the quoted name */
export function ddl(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (
  resource_lock_key   text COLLATE "C" PRIMARY KEY,
  resource_lock_value text NOT NULL,                 -- the holder, or the last one
  fence               bigint NOT NULL,               -- the last fencing token
  is_kept             boolean NOT NULL DEFAULT false, -- the work of the holder has ended: the lock is kept until it expires
  waiters             text[] NOT NULL DEFAULT '{}',  -- in order, for each waiting process: '<number> <turns> <ticket> <last sign> <calls>'
  calls_behind        integer NOT NULL DEFAULT 0,    -- how many calls wait in the process of the holder, by its last extension
  acquired_at         timestamptz NOT NULL,
  update_time         timestamptz NOT NULL,
  expires_at          timestamptz NOT NULL           -- 'epoch' once it is released
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)`;
}

/**
 * Creates the statements. Most handle many different locks: each argument is an array with one element for each lock, and each row of the
 * result has a `key`. The first argument has the keys. They lock rows in the order of keys, so two statements never deadlock. A released
 * lock leaves its row behind, and the only index is the primary key, so updates change no index.
 * @param table the quoted name
 */
export function postgresStatements(table: string): PostgresStatements {
  const turn = turnOf(table);
  const extend = extendOf(table);
  return {
    take: new PostgresStatement('take', takeOf(table), ACQUISITION),
    give: new PostgresStatement('give', giveOf(table), RELEASE),
    turn: new PostgresStatement('turn', turn, ACQUISITION, LOCKS_AT_ONCE),
    giveAndTurn: new PostgresStatement('turn', turn, RELEASE, LOCKS_AT_ONCE),
    extend: new PostgresStatement('extend', extend, EXTENSION, LOCKS_AT_ONCE),
    keep: new PostgresStatement('extend', extend, RELEASE, LOCKS_AT_ONCE),
    transfer: new PostgresStatement('transfer', transferOf(table), RELEASE, LOCKS_AT_ONCE),
    inspect: new PostgresStatement('inspect', inspectOf(table), LOOK, LOCKS_AT_ONCE),
    scan: new PostgresStatement('scan', scanOf(table), LOOK),
    notify: new PostgresStatement('notify', NOTIFY, RELEASE),
    sweep: new PostgresStatement('sweep', sweepOf(table), LOOK),
  };
}

/** The arguments of one operation of the statement `turn`. */
export interface Turn {
  readonly key: string;
  /** The owner that releases the lock. */
  readonly give?: string;
  /** The owner that acquires the lock. */
  readonly owner?: string;
  /** The ticket of the place to take or to give up. */
  readonly ticket?: string;
  readonly ttlMs?: number;
  /** The number of tokens to mint. */
  readonly turns?: number;
  /** The number of the place: the arrival time, by the clock of the server in microseconds. */
  readonly number?: number;
  /** Whether a refused operation takes a place. */
  readonly queues?: boolean;
  /** The number of waiting calls of the process. */
  readonly calls?: number;
}

export function turnValues({ key, give, owner, ticket, ttlMs, turns, number, queues, calls }: Turn): unknown[] {
  const [giver, asker, place] = [give ?? null, owner ?? null, ticket ?? null];
  return [stored(key), giver, asker, place, ttlMs ?? 0, turns ?? 1, number ?? null, queues ?? false, calls ?? 0];
}

/**
 * Releases a lock, acquires it, or does both in one step. A refused process can take a place in the queue. A free lock always goes to the
 * first place.
 *
 * $1 keys  $2 owners that release: null for none, '*' for any owner  $3 owners that acquire: null for none  $4 tickets of the places to
 * take or to give up  $5 ttls in ms  $6 the numbers of tokens to mint  $7 numbers of the places: the arrival times by the clock of the
 * server in us, or null  $8 whether a refused owner takes a place  $9 the numbers of waiting calls
 *
 * A new holder is written under FOR UPDATE, which conflicts with a guarding transaction (FOR KEY SHARE). The statement does not wait for
 * it, but returns `is_guarded`. All other changes use FOR NO KEY UPDATE, which does not conflict. The row is read only after it is locked,
 * so decisions never use an old state. A missing row gets no answer unless it is inserted. `is_skipped` means that another session has
 * locked the row, or is just inserting it.
 *
 * A hand-over skips silent processes. It compares signs with the latest one and not with the time, so a short pause of the server makes
 * nobody silent (docs/adr/0027-dead-places.md). A skipped process gets its place back with its next poll.
 *
 * A token is the time of the server in microseconds. If the last token has reached that time, a single token is minted: the last one plus
 * one. Unused tokens of a block would push the fence ahead of the clock, and a deleted row would lose them.
 */
function turnOf(table: string): string {
  return `
WITH ask AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::int[], $7::bigint[], $8::boolean[], $9::int[])
    AS a(key, give, owner, ticket, ttl, turns, number, queues, calls)
), locked AS MATERIALIZED (
  SELECT a.*, l.fence, l.waiters, l.is_kept, l.resource_lock_value AS holder, l.expires_at
  FROM ask a JOIN ${table} l ON l.resource_lock_key = a.key ORDER BY l.resource_lock_key ${LOCKING}
), found AS MATERIALIZED (
  SELECT l.*, clock.now, state.us, state.is_held, state.gives,
    ARRAY(SELECT entry FROM unnest(l.waiters) WITH ORDINALITY AS w(entry, at)
      WHERE ${ticket('entry')} IS DISTINCT FROM l.ticket AND ${sign('entry')} >= heard.since ORDER BY at) AS others,
    (SELECT ${number('entry')} FROM unnest(l.waiters) AS w(entry) WHERE ${ticket('entry')} = l.ticket) AS old_number
  FROM locked l ${readNow('l.fence')} CROSS JOIN LATERAL (
    SELECT ${us('clock.now')} AS us, l.expires_at > clock.now AS is_held,
      (l.expires_at > clock.now AND (l.give = '*' OR l.give = l.holder AND NOT (l.is_kept AND l.ticket IS NOT DISTINCT FROM l.give))) IS TRUE AS gives
  ) AS state CROSS JOIN LATERAL (
    SELECT CASE WHEN state.is_held AND NOT state.gives THEN 0
      ELSE greatest(max(least(${sign('entry')}, state.us)) - ${SILENT_US}, state.us - CASE WHEN l.queues THEN ${SILENT_US} ELSE ${DEAD_US} END)
      END AS since
    FROM unnest(l.waiters) AS w(entry)
  ) AS heard
), decided AS MATERIALIZED (
  SELECT f.*, f.owner IS NOT NULL AND (
      (f.is_held AND NOT f.gives AND NOT f.is_kept AND f.holder = f.owner)
      OR ((f.gives OR NOT f.is_held) AND NOT other.is_first)
    ) AS takes,
    other.is_first AND f.owner IS NOT NULL AND NOT f.is_held OR f.gives AS is_given_on,
    CASE WHEN NOT f.queues THEN f.others ELSE ARRAY(
      SELECT entry FROM unnest(f.others || (lpad((
        CASE WHEN f.number IS NOT NULL THEN greatest(1, least(f.number, f.us))
          ELSE coalesce(f.old_number, greatest(f.us, coalesce(${number('f.others[cardinality(f.others)]')}, 0) + 1)) END
        )::text, 16, '0') || ' ' || f.turns || ' ' || f.ticket || ' ' || f.us || ' ' || f.calls)) AS w(entry) ORDER BY entry COLLATE "C"
    ) END AS queue
  FROM found f CROSS JOIN LATERAL (
    SELECT f.others <> '{}' AND coalesce(coalesce(f.number, f.old_number) >= ${number('f.others[1]')}, true) AS is_first
  ) AS other
), changing AS MATERIALIZED (
  SELECT l.resource_lock_key AS key FROM decided d JOIN ${table} l ON l.resource_lock_key = d.key
  WHERE d.takes OR d.is_given_on ORDER BY l.resource_lock_key FOR UPDATE OF l SKIP LOCKED
), result AS MATERIALIZED (
  SELECT d.*, may.change,
    greatest(CASE WHEN may.change AND (d.takes OR d.queue <> '{}') THEN ${exact('d.fence + 1')} ELSE d.fence END, d.us) AS first_token,
    may.change AND d.takes AS is_taken,
    CASE WHEN may.change AND NOT d.takes AND d.queue <> '{}' THEN ${ticket('d.queue[1]')} END AS granted,
    CASE WHEN NOT may.change THEN d.queue WHEN d.takes THEN d.others ELSE d.queue[2:] END AS left_over,
    CASE WHEN d.us <= d.fence THEN 1
      ELSE least(${MAX_TOKEN_LEAD_US}, CASE WHEN d.takes THEN d.turns ELSE ${turns('d.queue[1]')}::int END) END AS count
  FROM decided d CROSS JOIN LATERAL (SELECT d.key IN (SELECT key FROM changing) AS change OFFSET 0) AS may
), updated AS (
  UPDATE ${table} l SET
    resource_lock_value = CASE WHEN r.is_taken THEN r.owner ELSE coalesce(r.granted, l.resource_lock_value) END,
    fence = CASE WHEN r.is_taken OR r.granted IS NOT NULL THEN r.first_token + r.count - 1 ELSE l.fence END,
    is_kept = l.is_kept AND NOT r.change,
    calls_behind = CASE WHEN r.change THEN 0 ELSE l.calls_behind END,
    waiters = r.left_over,
    acquired_at = CASE WHEN r.change THEN r.now ELSE l.acquired_at END,
    update_time = r.now,
    expires_at = CASE WHEN NOT r.change THEN l.expires_at WHEN r.is_taken THEN r.now + ${milliseconds('r.ttl')}
      WHEN r.granted IS NOT NULL THEN r.now + ${milliseconds(String(GRANT_TTL_MS))} ELSE 'epoch' END
  FROM result r WHERE l.resource_lock_key = r.key AND (r.change OR r.left_over <> r.waiters)
), inserted AS (
  INSERT INTO ${table} (resource_lock_key, resource_lock_value, fence, is_kept, waiters, calls_behind, acquired_at, update_time, expires_at)
  SELECT a.key, a.owner, ${us('clock.now')} + least(${MAX_TOKEN_LEAD_US}, a.turns) - 1, false, '{}'::text[], 0,
    clock.now, clock.now, clock.now + ${milliseconds('a.ttl')}
  FROM ask a ${readNow('a.key')}
  WHERE a.owner IS NOT NULL AND NOT EXISTS (SELECT FROM ${table} l WHERE l.resource_lock_key = a.key)
  ORDER BY a.key ON CONFLICT DO NOTHING RETURNING resource_lock_key AS key, fence, acquired_at
)
SELECT key, is_taken::int AS is_taken, ((takes OR is_given_on) AND NOT change)::int AS is_guarded, gives::int AS gives,
  us::text AS us, first_token::text AS first_token, (first_token + count - 1)::text AS last_token,
  coalesce(${number('left_over[1]')}, us)::text AS bound, granted,
  holder, is_kept::int AS is_kept, fence::text AS fence, ${ms('now', 'expires_at')} AS remaining, (old_number IS NOT NULL)::int AS had_place,
  0 AS is_skipped
FROM result
UNION ALL
SELECT key, 1, 0, 0, us, us, fence::text, us, NULL, NULL, 0, NULL, NULL, 0, 0
FROM inserted CROSS JOIN LATERAL (SELECT ${us('acquired_at')}::text AS us) AS token
UNION ALL
SELECT key, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 0, 1
FROM ask a WHERE key NOT IN (SELECT key FROM result) AND key NOT IN (SELECT key FROM inserted)
  AND (owner IS NOT NULL OR EXISTS (SELECT FROM ${table} l WHERE l.resource_lock_key = a.key))`;
}

/**
 * Does the work of `turn` in a third of the time, for a free lock that was used before and that nobody waits for. Otherwise it returns no
 * row. $1 key  $2 owner  $3 ttl in ms
 */
function takeOf(table: string): string {
  return `
UPDATE ${table} SET resource_lock_value = $2::text, fence = greatest(${exact('fence + 1')}, ${us('clock_timestamp()')}),
  is_kept = false, calls_behind = 0, acquired_at = clock_timestamp(), update_time = clock_timestamp(),
  expires_at = clock_timestamp() + ${milliseconds('$3::float8')}
WHERE resource_lock_key = (
  SELECT resource_lock_key FROM ${table}
  WHERE resource_lock_key = $1::text AND expires_at <= clock_timestamp() AND waiters = '{}' FOR UPDATE SKIP LOCKED
) RETURNING fence::text AS token`;
}

/** Releases a lock that nobody waits for, like `turn`. Otherwise it returns no row. $1 key  $2 owner */
function giveOf(table: string): string {
  return `
UPDATE ${table} SET is_kept = false, update_time = clock_timestamp(), expires_at = 'epoch'
WHERE resource_lock_key = (
  SELECT resource_lock_key FROM ${table}
  WHERE resource_lock_key = $1::text AND resource_lock_value = $2::text AND expires_at > clock_timestamp() AND waiters = '{}'
  FOR UPDATE SKIP LOCKED
) RETURNING 1 AS is_done`;
}

/**
 * Restarts the ttl of a lock that its owner still holds, or keeps the lock for a last time. A kept lock is not handed over or extended,
 * and expires by itself. A guarding transaction does not block this.
 *
 * It writes nothing before it has locked all rows. Otherwise there could be a deadlock: an INSERT waits for one of its changed rows, while it
 * waits for a row of the INSERT.
 *
 * $1 keys  $2 owners  $3 ttls in ms  $4 whether to keep it  $5 the numbers of waiting calls in the process of the owner
 */
function extendOf(table: string): string {
  return `
WITH ask AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::float8[], $4::boolean[], $5::int[]) AS a(key, owner, ttl, keeps, calls)
), held AS MATERIALIZED (
  SELECT a.key, a.ttl, a.keeps, a.calls FROM ask a JOIN ${table} l ON l.resource_lock_key = a.key
  WHERE l.resource_lock_value = a.owner AND l.expires_at > clock_timestamp() AND (a.keeps OR NOT l.is_kept)
  ORDER BY l.resource_lock_key ${LOCKING}
), updated AS (
  UPDATE ${table} l SET is_kept = held.keeps, calls_behind = held.calls, update_time = clock_timestamp(),
    expires_at = clock_timestamp() + ${milliseconds('held.ttl')}
  FROM held WHERE l.resource_lock_key = held.key AND (SELECT count(*) FROM held) > 0 RETURNING l.resource_lock_key AS key
)
SELECT a.key, (a.key IN (SELECT key FROM updated))::int AS is_done, coalesce(l.expires_at > clock_timestamp(), false)::int AS is_held,
  (l.resource_lock_value = a.owner AND l.expires_at > clock_timestamp() AND (a.keeps OR NOT l.is_kept)
    AND a.key NOT IN (SELECT key FROM held))::int AS is_skipped
FROM ask a LEFT JOIN ${table} l ON l.resource_lock_key = a.key`;
}

/**
 * Gives a lock a new owner, if the expected owner holds it. If the new owner holds it already, the request has run twice: the ttl restarts,
 * and a longer remaining ttl can stay. The queue does not change.
 *
 * Like an acquisition, the statement uses FOR UPDATE without waiting: a transaction that guards the lock prevents the transfer.
 *
 * $1 keys  $2 current owners  $3 new owners  $4 ttls in ms  $5 whether to mint a token  $6 whether a longer ttl stays
 */
function transferOf(table: string): string {
  return `
WITH ask AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::boolean[], $6::boolean[]) AS a(key, giver, owner, ttl, mints, at_least)
), locked AS MATERIALIZED (
  SELECT a.*, l.fence, l.is_kept, l.resource_lock_value AS holder, l.expires_at
  FROM ask a JOIN ${table} l ON l.resource_lock_key = a.key ORDER BY l.resource_lock_key ${LOCKING}
), found AS MATERIALIZED (
  SELECT l.*, clock.now, l.expires_at > clock.now AS is_held,
    l.expires_at > clock.now AND NOT l.is_kept AND l.holder IN (l.giver, l.owner) AS is_meant, l.mints AND l.holder = l.giver AS is_new
  FROM locked l ${readNow('l.fence')}
), changing AS MATERIALIZED (
  SELECT l.resource_lock_key AS key FROM found f JOIN ${table} l ON l.resource_lock_key = f.key
  WHERE f.is_meant ORDER BY l.resource_lock_key FOR UPDATE OF l SKIP LOCKED
), updated AS (
  UPDATE ${table} l SET
    resource_lock_value = f.owner,
    calls_behind = 0,
    fence = CASE WHEN f.is_new THEN greatest(${exact('f.fence + 1')}, ${us('f.now')}) ELSE l.fence END,
    acquired_at = CASE WHEN f.is_new THEN f.now ELSE l.acquired_at END,
    update_time = f.now,
    expires_at = greatest(f.now + ${milliseconds('f.ttl')}, CASE WHEN f.at_least THEN l.expires_at END)
  FROM found f WHERE l.resource_lock_key = f.key AND f.key IN (SELECT key FROM changing)
  RETURNING l.resource_lock_key AS key, l.fence
)
SELECT f.key, u.fence::text AS token, f.is_held::int AS is_held, (f.is_meant AND u.key IS NULL)::int AS is_guarded, 0 AS is_skipped
FROM found f LEFT JOIN updated u ON u.key = f.key
UNION ALL
SELECT key, NULL, 0, 0, 1 FROM ask a
WHERE key NOT IN (SELECT key FROM found) AND EXISTS (SELECT FROM ${table} l WHERE l.resource_lock_key = a.key)`;
}

/** Fails outside a transaction, where a guard would end with its statement. Inside one it has no further effect. */
export const IN_TRANSACTION = 'LOCK TABLE pg_catalog.pg_class IN ACCESS SHARE MODE';
/** Matches the error of a guard: the number of the lock that is not held, from 1, and whether another owner holds it. */
export const NOT_GUARDED = /lock (?<number>\d+) of the guard is not held any more(?<stolen>, but by another)?/;
/** The error of a guard whose transaction may have read data from before the lock was passed on. */
export const READ_TOO_EARLY = 'of the guard was passed on after the transaction had begun';
/** How much slower the clock of a server may run than the clock of a process, as a fraction. */
const CLOCK_DRIFT = 0.001;
/** Whether the transaction reads a snapshot that is older than this number of milliseconds. */
const isOlder = (age: string) => `current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
  AND statement_timestamp() - transaction_timestamp() > ${milliseconds(`${age} * (1 - ${CLOCK_DRIFT})`)}`;
/** Fails in such a transaction. Without parameters the statement is a single message, so its timestamp is the arrival of the message. */
export const ageCheck = (ms: number): string =>
  `SELECT CASE WHEN ${isOlder(String(ms))} THEN CAST('lock ' || current_setting('transaction_isolation') || ' ${READ_TOO_EARLY}' AS int) END`;
/** Always fails, so that PostgreSQL can only roll the transaction back. */
export const ABORT = "SELECT CAST('the guard was refused' AS int)";

/**
 * Guards locks for the current transaction: until it ends, no other owner can acquire them, because acquisitions lock the row FOR UPDATE.
 * Leases can still be extended. The statement fails if a lock has another owner by now. Then the transaction cannot commit, even if the
 * answer is lost. An expired lease does not matter while no other owner has acquired the lock.
 *
 * The row is checked after it is locked. A transaction with an older snapshot fails with 40001 if the holder has changed since then. The
 * statement runs on a connection of the application with any driver, so each placeholder occurs once, in order, and no value is an array.
 * $1 key  $2 owner  $3 the smallest valid token, repeated for each lock; at the end, if a lock was passed on within its process, the time
 * since then in ms
 *
 * Passing a lock on does not change its row, so the row cannot reveal an older snapshot. Therefore the statement compares the age of the
 * transaction with that time. Both are durations, so the clocks need not agree.
 */
export function guardOf(table: string, count: number, isPassedOn: boolean): string {
  const asked = Array.from({ length: count }, (_, at) => {
    const [key, owner, fence] = [1, 2, 3].map((part) => `$${3 * at + part}`);
    return `(${at + 1}, CAST(${key} AS text), CAST(${owner} AS text), CAST(${fence} AS bigint))`;
  });
  const readTooEarly = `WHEN ${isOlder(`CAST($${3 * count + 1} AS float8)`)} THEN CAST('lock ' || n || ' ${READ_TOO_EARLY}' AS int)`;
  return `
WITH ask(n, key, owner, fence) AS MATERIALIZED (
  VALUES ${asked.join(', ')}
), held AS MATERIALIZED (
  SELECT n, l.resource_lock_value = ask.owner AND l.fence >= ask.fence AND l.expires_at > 'epoch' AS is_held,
    l.resource_lock_value <> ask.owner AND l.expires_at > clock_timestamp() AS is_stolen
  FROM ask JOIN ${table} l ON l.resource_lock_key = ask.key ORDER BY l.resource_lock_key FOR KEY SHARE OF l
)
SELECT n, CASE ${isPassedOn ? readTooEarly : ''} WHEN n IN (SELECT n FROM held WHERE is_held) THEN 1
  ELSE CAST('lock ' || n || ' of the guard is not held any more' ||
  CASE WHEN n IN (SELECT n FROM held WHERE is_stolen) THEN ', but by another owner' ELSE '' END AS int) END AS is_guarded
FROM ask`;
}

/** $1 keys */
function inspectOf(table: string): string {
  return `
SELECT a.key, l.resource_lock_value AS holder, l.fence::text AS fence, l.is_kept::int AS is_kept, l.calls_behind,
  ${ms('clock_timestamp()', 'l.expires_at')} AS remaining, ${ms('l.acquired_at', 'clock_timestamp()')} AS held_for,
  (SELECT string_agg(${ticket('entry')} || ' ' || ${calls('entry')}, E'\\n' ORDER BY at) FROM (
    SELECT entry, at, max(${sign('entry')}) OVER () AS latest FROM unnest(l.waiters) WITH ORDINALITY AS w(entry, at)
  ) AS w WHERE ${sign('entry')} >= latest - ${SILENT_US}) AS waiting
FROM unnest($1::text[]) AS a(key)
LEFT JOIN ${table} l ON l.resource_lock_key = a.key AND l.expires_at > clock_timestamp()`;
}

/** Returns a page of keys. $1 the smallest key  $2 the last key of the previous page. `held` is a JSON array of the keys with a held lock. */
function scanOf(table: string): string {
  return `
WITH page AS MATERIALIZED (
  SELECT resource_lock_key AS key, expires_at > clock_timestamp() AS is_held FROM ${table}
  WHERE resource_lock_key >= $1::text AND resource_lock_key > $2::text ORDER BY resource_lock_key LIMIT ${PAGE}
)
SELECT max(key COLLATE "C") AS last, count(*)::int AS scanned, (json_agg(key) FILTER (WHERE is_held))::text AS held FROM page`;
}

/**
 * Sends messages to processes in a separate transaction. It writes only its commit record, without a flush, so it holds the global lock of
 * all notifications for microseconds only.
 *
 * $1 channels  $2 messages
 */
const NOTIFY = `
SELECT count(pg_notify(channel, message)::text)::int AS sent FROM unnest($1::text[], $2::text[]) AS m(channel, message)`;

/**
 * Deletes rows of long-unused locks in one page of the table. A new row of the same key starts its tokens at the clock, so a row with
 * tokens ahead of the clock stays.
 *
 * $1 the last key of the previous page  $2 how long a lock must be unused, in ms
 */
function sweepOf(table: string): string {
  return `
WITH page AS MATERIALIZED (
  SELECT resource_lock_key AS key FROM ${table} WHERE resource_lock_key > $1::text ORDER BY resource_lock_key LIMIT ${PAGE}
), unused AS MATERIALIZED (
  SELECT l.resource_lock_key AS key FROM page JOIN ${table} l ON l.resource_lock_key = page.key
  WHERE greatest(l.update_time, l.expires_at) < clock_timestamp() - ${milliseconds('$2::float8')} AND l.fence < ${us('clock_timestamp()')}
  ORDER BY l.resource_lock_key FOR UPDATE OF l SKIP LOCKED
), gone AS (
  DELETE FROM ${table} l USING unused WHERE l.resource_lock_key = unused.key RETURNING 1
)
SELECT (SELECT max(key COLLATE "C") FROM page) AS last, (SELECT count(*) FROM page)::int AS scanned, (SELECT count(*) FROM gone)::int AS deleted`;
}
