import { ACQUISITION, EXTENSION, RELEASE } from '../../../core/backend/lane.js';
import { GRANT_TTL_MS } from '../../node/messages.js';
import type { Row, SqlClient } from '../sql-client.js';
import type { Statement } from '../statement.js';
import { stored } from '../stored-key.js';

/** Behind what others wait for: what is only looked at. */
const LOOK = ACQUISITION + 1;
/** How many locks one statement is for at most. */
const LOCKS_AT_ONCE = 100;
/** How many rows a page of the table has: for so long no lock is served, some milliseconds. */
export const PAGE = 1_000;
/**
 * A process that waits asks each second. One that has not for so long while another has is passed over, in microseconds: as long as a
 * grant that is not confirmed stands, so processes that died together cost one of those.
 */
const SILENT_US = GRANT_TTL_MS * 1_000;
/** Nobody who is alive is silent for so long, unless the server was: then all come back within a second. In microseconds. */
const DEAD_US = 5 * SILENT_US;
/** How far a block of tokens may reach ahead of the clock, in microseconds. */
const MAX_TOKEN_LEAD_US = 1_000;

const us = (time: string) => `floor(extract(epoch FROM ${time}) * 1000000)::bigint`;
/** Numbers travel as texts: which digits of a float8 arrive depends on the settings of the session and of the driver. No time fails, not even `infinity`. */
const ms = (from: string, to: string) => `((extract(epoch FROM ${to}) - extract(epoch FROM ${from})) * 1000)::text`;
/** Fails, as out of range, from 2^53 on: JavaScript does not count exactly there. */
const exact = (token: string) => `(${token}) * 1024 / 1024`;
/** No statement waits for a row that another session holds: all locks of the process would wait with it. */
const LOCKING = 'FOR NO KEY UPDATE OF l SKIP LOCKED';
const milliseconds = (count: string) => `${count} * interval '1 millisecond'`;
/** The clock is read for each row, once that is locked: a statement may have waited. */
const readNow = (row: string) =>
  `CROSS JOIN LATERAL (SELECT clock_timestamp() AS now WHERE ${row} IS NOT NULL OFFSET 0) AS clock`;
/** The parts of a place in the queue. */
const part = (at: number) => (entry: string) => `split_part(${entry}, ' ', ${at})`;
const [turns, ticket] = [part(2), part(3)];
const number = (entry: string) => `${part(1)(entry)}::bigint`;
/** When its process last asked, by the clock of the server in microseconds. */
const sign = (entry: string) => `${part(4)(entry)}::bigint`;
/** How many calls of its process wait; empty where a process has not told. */
const calls = part(5);

/** One statement, which its connection prepares. */
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

/** What creates the table. @param table quoted */
export function ddl(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (
  resource_lock_key   text COLLATE "C" PRIMARY KEY,
  resource_lock_value text NOT NULL,                 -- the holder, or the last one
  fence               bigint NOT NULL,               -- the last fencing token
  is_kept             boolean NOT NULL DEFAULT false, -- the work of the holder has ended: the lock stands until it expires
  waiters             text[] NOT NULL DEFAULT '{}',  -- '<number> <turns> <ticket> <time of its last sign> <calls>' of each process that waits, in order
  calls_behind        integer NOT NULL DEFAULT 0,    -- how many calls wait in the process of the holder, by its last extension
  acquired_at         timestamptz NOT NULL,
  update_time         timestamptz NOT NULL,
  expires_at          timestamptz NOT NULL           -- 'epoch' once it is released
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)`;
}

/**
 * Makes the statements, each of which does an operation on many locks, and each lock once: their arguments are arrays with one element
 * for each lock, the first one that of their keys, and their answers rows with the `key`. Rows are locked in the order of their keys, so no two statements
 * wait for each other. A row is kept when its lock is released, and there is no index but the primary key: so an update changes no index.
 * @param table quoted
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

/** What one operation of the statement `turn` asks for. */
export interface Turn {
  readonly key: string;
  /** The owner that gives the lock back. */
  readonly give?: string;
  /** The owner that asks. */
  readonly owner?: string;
  /** The ticket whose place is taken, or given up. */
  readonly ticket?: string;
  readonly ttlMs?: number;
  /** How many tokens to mint. */
  readonly turns?: number;
  /** The number of the place: when the caller came, by the clock of the server in microseconds. */
  readonly number?: number;
  /** Whether it takes a place if it is refused. */
  readonly queues?: boolean;
  /** How many calls of the process wait. */
  readonly calls?: number;
}

export function turnValues({ key, give, owner, ticket, ttlMs, turns, number, queues, calls }: Turn): unknown[] {
  const [giver, asker, place] = [give ?? null, owner ?? null, ticket ?? null];
  return [stored(key), giver, asker, place, ttlMs ?? 0, turns ?? 1, number ?? null, queues ?? false, calls ?? 0];
}

/**
 * Gives a lock back, or asks for it, or both in one step; a process that asks in vain may take a place in the queue. A lock that is
 * free goes to the first place, whoever asks.
 *
 * $1 keys  $2 owners that give the lock back: null nobody, '*' whoever holds it  $3 owners that ask: null nobody  $4 tickets whose place is
 * taken, or given up  $5 ttls in ms  $6 how many tokens to mint  $7 numbers of the places: when the caller came, by the clock of the
 * server in us, or null  $8 whether a place is taken in vain of a grant  $9 how many calls of the process wait
 *
 * Whoever becomes the holder is written under FOR UPDATE, which a transaction that guards the lock (FOR KEY SHARE) keeps out; it is
 * tried, not waited for: `is_guarded`. All else is written under FOR NO KEY UPDATE, which it lets through. The row is read only once it is
 * locked, so nothing is decided by an older state. There is no answer for a lock whose row is not there, unless it is inserted; `is_skipped`
 * where another session has the row, or was just inserting it.
 *
 * A lock that is handed over passes over those who are silent. Their signs are compared with the latest one, not with the time: a short
 * pause of the server makes nobody silent (docs/adr/0027-dead-places.md). Who was passed over is back in its place when it asks again.
 *
 * A token is the time of the server in microseconds, or one more than the last one where that has reached the time; then one is minted,
 * however many are asked for: blocks of which few are used must not drive the fence ahead of the clock, with which it goes on when
 * the row is deleted.
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
  SELECT a.key, a.owner, ${us('clock.now')} + least(${MAX_TOKEN_LEAD_US}, a.turns) - 1, false, '{}'::text[], 0, clock.now, clock.now, clock.now + ${milliseconds('a.ttl')}
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
 * Takes one lock that is free, was used before, and is waited for by nobody: what `turn` would do in a third of the time. No answer where
 * it is not so simple. $1 key  $2 owner  $3 ttl in ms
 */
function takeOf(table: string): string {
  return `
UPDATE ${table} SET resource_lock_value = $2::text, fence = greatest(${exact('fence + 1')}, ${us('clock_timestamp()')}), is_kept = false, calls_behind = 0,
  acquired_at = clock_timestamp(), update_time = clock_timestamp(), expires_at = clock_timestamp() + ${milliseconds('$3::float8')}
WHERE resource_lock_key = (
  SELECT resource_lock_key FROM ${table}
  WHERE resource_lock_key = $1::text AND expires_at <= clock_timestamp() AND waiters = '{}' FOR UPDATE SKIP LOCKED
) RETURNING fence::text AS token`;
}

/** Gives one lock back that nobody waits for, as `turn` would. No answer where it is not so simple. $1 key  $2 owner */
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
 * Starts the ttl of a lock anew that its owner still holds, or keeps it for a last time: then it is handed to nobody, not even extended,
 * and ends by itself. A transaction that guards the lock lets it through.
 *
 * Nothing is written before all rows are locked: an INSERT of a key waits for whoever has changed its row, and would do so while this
 * waits for a row of its own statement.
 *
 * $1 keys  $2 owners  $3 ttls in ms  $4 whether it is kept  $5 how many calls wait in the process of the owner
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
  UPDATE ${table} l SET is_kept = held.keeps, calls_behind = held.calls, update_time = clock_timestamp(), expires_at = clock_timestamp() + ${milliseconds('held.ttl')}
  FROM held WHERE l.resource_lock_key = held.key AND (SELECT count(*) FROM held) > 0 RETURNING l.resource_lock_key AS key
)
SELECT a.key, (a.key IN (SELECT key FROM updated))::int AS is_done, coalesce(l.expires_at > clock_timestamp(), false)::int AS is_held,
  (l.resource_lock_value = a.owner AND l.expires_at > clock_timestamp() AND (a.keeps OR NOT l.is_kept)
    AND a.key NOT IN (SELECT key FROM held))::int AS is_skipped
FROM ask a LEFT JOIN ${table} l ON l.resource_lock_key = a.key`;
}

/**
 * Gives a lock another owner, if a certain one has it. One that the new owner has already was transferred by the same request, which may have
 * run before: its ttl starts anew, unless more is left and may stay. The queue stays as it is.
 *
 * As a lock that is taken it is written under FOR UPDATE, which is tried, not waited for: a transaction that guards the lock keeps it out.
 *
 * $1 keys  $2 owners that have the locks  $3 owners that get them  $4 ttls in ms  $5 whether a token is minted  $6 whether a longer time stays
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

/** Fails outside of a transaction, in which a guard would end with its statement; else it does what every query does. */
export const IN_TRANSACTION = 'LOCK TABLE pg_catalog.pg_class IN ACCESS SHARE MODE';
/** What the error of a guard says of a lock that is not held: its number among those that are guarded, from 1, and whether another owner holds it. */
export const NOT_GUARDED = /lock (?<number>\d+) of the guard is not held any more(?<stolen>, but by another)?/;
/** The error of a guard whose transaction may have read before a lock was passed on. */
export const READ_TOO_EARLY = 'of the guard was passed on after the transaction had begun';
/** How much slower than the clock of a process the clock of a server may run, which may be slewed. */
const CLOCK_DRIFT = 0.001;
/** Whether the transaction reads what was there when it began, and is older than so many milliseconds. */
const isOlder = (age: string) => `current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
  AND statement_timestamp() - transaction_timestamp() > ${milliseconds(`${age} * (1 - ${CLOCK_DRIFT})`)}`;
/** Fails in such a transaction. It has no values, so it is one message, and its time is when that arrives. */
export const ageCheck = (ms: number): string =>
  `SELECT CASE WHEN ${isOlder(String(ms))} THEN CAST('lock ' || current_setting('transaction_isolation') || ' ${READ_TOO_EARLY}' AS int) END`;
/** Fails in each transaction, which PostgreSQL then only rolls back. */
export const ABORT = "SELECT CAST('the guard was refused' AS int)";

/**
 * Keeps locks for the transaction that it runs in: nobody becomes their holder until that has ended, as who does locks the row FOR UPDATE
 * before; their leases can still be extended. One that is not its owner's any more makes it fail, so that nothing of the transaction
 * takes effect, whatever becomes of the answer. Whether its lease has ended does not matter: nobody has taken it since.
 *
 * The row is judged once it is locked: a transaction that reads an older state fails with 40001 if the holder has changed since.
 * It runs on a connection of the application, by whatever driver: its placeholders stand in order, each once, and no value is an array.
 * $1 key  $2 owner  $3 the least token, and so on for each of the locks; then, if a lock was passed on within its process, how long ago in ms
 *
 * Passing on does not change the row, so a snapshot that is older than that is not found out by it: the age of the transaction is compared.
 * Both times are lengths of time, so the clocks need not agree.
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
SELECT n, CASE ${isPassedOn ? readTooEarly : ''} WHEN n IN (SELECT n FROM held WHERE is_held) THEN 1 ELSE CAST('lock ' || n || ' of the guard is not held any more' ||
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

/** A page of the table. $1 keys from this on  $2 and behind this one. `held` is a JSON array of the keys whose locks are held. */
function scanOf(table: string): string {
  return `
WITH page AS MATERIALIZED (
  SELECT resource_lock_key AS key, expires_at > clock_timestamp() AS is_held FROM ${table}
  WHERE resource_lock_key >= $1::text AND resource_lock_key > $2::text ORDER BY resource_lock_key LIMIT ${PAGE}
)
SELECT max(key COLLATE "C") AS last, count(*)::int AS scanned, (json_agg(key) FILTER (WHERE is_held))::text AS held FROM page`;
}

/**
 * Tells processes of their turns, in a transaction of its own: it writes nothing but its commit record, which is not flushed, so the
 * lock that all notifications of the server share is held for microseconds.
 *
 * $1 channels  $2 messages
 */
const NOTIFY = `
SELECT count(pg_notify(channel, message)::text)::int AS told FROM unnest($1::text[], $2::text[]) AS m(channel, message)`;

/**
 * Deletes rows of locks that nobody has used for long, in one page of the table. A new row of the same key begins with the clock, so a row
 * whose tokens are ahead of that stays, as after the clock was set back.
 *
 * $1 keys behind this one  $2 for how long they must be unused, in ms
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
