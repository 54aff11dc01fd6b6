import { crc32 } from 'node:zlib';

/**
 * Locks in PostgreSQL as others make them, as far as their statements decide what happens: read in their sources, written anew, and only
 * for the tests of hazards.
 */

/** A client or a pool. */
export interface Database {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}

/** What reads the time for locks that ask the clock of the client. */
export interface ClientClock {
  /** Milliseconds since 1970. */
  now?: () => number;
  /** The zone that a `LocalDateTime` is in. */
  zone?: string;
}

const LOCAL_TIME = 'timestamp(3) without time zone';

/** The tables of all of them. */
export const NAIVE_TABLES = `
  CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until ${LOCAL_TIME} NOT NULL, locked_by varchar(255) NOT NULL);
  CREATE TABLE int_lock (lock_key varchar(255) PRIMARY KEY, client_id text NOT NULL, expired_after ${LOCAL_TIME} NOT NULL);
  CREATE TABLE verrou (key varchar(255) PRIMARY KEY, owner varchar(255) NOT NULL, expiration bigint);
  CREATE TABLE counted (name text PRIMARY KEY, version bigint NOT NULL, expires_at timestamptz NOT NULL)`;

/** ShedLock: one statement that inserts, or takes over what has ended, by the clock of the application. */
export function shedLock(
  database: Database,
  name: string,
  owner: string,
  ttlMs: number,
  clock: ClientClock = {},
): Promise<boolean> {
  return changed(
    database,
    `INSERT INTO shedlock (name, lock_until, locked_by) VALUES ($1, $3::timestamp + $4 * interval '1 millisecond', $2)
     ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = excluded.locked_by
     WHERE shedlock.lock_until <= $3::timestamp`,
    [name, owner, localTime(clock), ttlMs],
  );
}

const DATABASE_TIME = `timezone('utc', CURRENT_TIMESTAMP)`;

/** ShedLock `usingDbTime`. */
export function shedLockByDatabaseTime(
  database: Database,
  name: string,
  owner: string,
  ttlMs: number,
): Promise<boolean> {
  return changed(
    database,
    `INSERT INTO shedlock (name, lock_until, locked_by) VALUES ($1, ${DATABASE_TIME} + $3 * interval '1 millisecond', $2)
     ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = excluded.locked_by
     WHERE shedlock.lock_until <= ${DATABASE_TIME}`,
    [name, owner, ttlMs],
  );
}

/** ShedLock as it is used: whatever goes wrong counts as a lock that another one holds. */
export async function shedLockOrSkip(database: Database, name: string, owner: string, ttlMs: number): Promise<boolean> {
  return shedLock(database, name, owner, ttlMs).catch(() => false);
}

/** ShedLock, until some releases ago: whoever unlocks, unlocks. */
export function shedUnlock(database: Database, name: string): Promise<boolean> {
  return changed(database, `UPDATE shedlock SET lock_until = 'epoch' WHERE name = $1`, [name]);
}

/** Spring Integration: an update, then an insert, by the local time of the client. */
export async function springLock(
  database: Database,
  key: string,
  client: string,
  ttlMs: number,
  clock: ClientClock = {},
): Promise<boolean> {
  const values = [key, client, localTime(clock), ttlMs];
  const isUpdated = await changed(
    database,
    `UPDATE int_lock SET client_id = $2, expired_after = $3::timestamp + $4 * interval '1 millisecond'
     WHERE lock_key = $1 AND (client_id = $2 OR expired_after < $3::timestamp)`,
    values,
  );
  if (isUpdated) return true;
  const inserting = changed(
    database,
    `INSERT INTO int_lock (lock_key, client_id, expired_after) VALUES ($1, $2, $3::timestamp + $4 * interval '1 millisecond')`,
    values,
  );
  return inserting.catch((error: { code?: string }) => {
    if (error.code === '23505') return false;
    throw error as Error;
  });
}

/** Verrou: an insert; if that fails, for whatever reason, an update by the clock of the client. */
export async function verrouLock(
  database: Database,
  key: string,
  owner: string,
  ttlMs: number,
  { now = Date.now }: ClientClock = {},
): Promise<boolean> {
  const expiration = now() + ttlMs;
  try {
    await database.query('INSERT INTO verrou (key, owner, expiration) VALUES ($1, $2, $3)', [key, owner, expiration]);
    return true;
  } catch {
    return changed(database, 'UPDATE verrou SET owner = $2, expiration = $3 WHERE key = $1 AND expiration <= $4', [
      key,
      owner,
      expiration,
      now(),
    ]);
  }
}

/** Verrou: looks whose it is, then deletes it. */
export async function verrouUnlock(database: Database, key: string, owner: string): Promise<boolean> {
  const { rows } = await database.query('SELECT owner FROM verrou WHERE key = $1', [key]);
  if (rows[0]?.owner !== owner) return false;
  return changed(database, 'DELETE FROM verrou WHERE key = $1 AND owner = $2', [key, owner]);
}

/** Symfony's store of advisory locks, which are known by 32 bits of a checksum, and belong to the session. */
export async function advisoryLock(database: Database, key: string): Promise<boolean> {
  const { rows } = await database.query('SELECT pg_try_advisory_lock($1::bigint) AS locked', [crc32(key)]);
  return rows[0]?.locked === true;
}

/** A lock with a token that is counted in its row. @returns the token, undefined when it is taken */
export async function countedLock(database: Database, name: string, ttlMs: number): Promise<number | undefined> {
  const { rows } = await database.query(
    `INSERT INTO counted (name, version, expires_at) VALUES ($1, 1, clock_timestamp() + $2 * interval '1 millisecond')
     ON CONFLICT (name) DO UPDATE SET version = counted.version + 1, expires_at = excluded.expires_at
     WHERE counted.expires_at <= clock_timestamp() RETURNING version`,
    [name, ttlMs],
  );
  return rows[0] && Number(rows[0].version);
}

export function countedUnlock(database: Database, name: string): Promise<boolean> {
  return changed(database, `UPDATE counted SET expires_at = 'epoch' WHERE name = $1`, [name]);
}

/** What a sweep in two steps finds. */
export async function endedLocks(database: Database): Promise<string[]> {
  const { rows } = await database.query('SELECT name FROM counted WHERE expires_at <= clock_timestamp() ORDER BY name');
  return rows.map(({ name }) => name as string);
}

/** What a sweep in two steps does with what it found. */
export async function deleteLocks(database: Database, names: readonly string[]): Promise<void> {
  await database.query('DELETE FROM counted WHERE name = ANY ($1)', [names]);
}

async function changed(database: Database, text: string, values: unknown[]): Promise<boolean> {
  return (await database.query(text, values)).rowCount === 1;
}

/** What a clock on the wall of the zone shows. */
function localTime({ now = Date.now, zone = 'UTC' }: ClientClock): string {
  return new Date(now()).toLocaleString('sv-SE', { timeZone: zone });
}
