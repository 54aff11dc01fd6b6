import { crc32 } from 'node:zlib';

/**
 * Locks in a database as others make them, as far as their statements decide what happens: read in their sources, written anew, and only
 * for the tests of hazards. Their placeholders are those of PostgreSQL.
 */

/** A client or a pool. */
export interface Database {
  /** @default PostgreSQL */
  readonly dialect?: 'mysql';
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}

/** What reads the time for locks that ask the clock of the client. */
export interface ClientClock {
  /** Milliseconds since 1970. */
  now?: () => number;
  /** The zone that a `LocalDateTime` is in. */
  zone?: string;
}

/** The tables of all of them. */
export function naiveTables(dialect?: 'mysql'): string[] {
  const [localTime, instant] =
    dialect === 'mysql' ? ['datetime(3)', 'datetime(3)'] : ['timestamp(3) without time zone', 'timestamptz'];
  return [
    `CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until ${localTime} NOT NULL, locked_by varchar(255) NOT NULL)`,
    `CREATE TABLE int_lock (lock_key varchar(255) PRIMARY KEY, client_id varchar(255) NOT NULL, expired_after ${localTime} NOT NULL)`,
    'CREATE TABLE verrou (name varchar(255) PRIMARY KEY, owner varchar(255) NOT NULL, expiration bigint)',
    `CREATE TABLE counted (name varchar(255) PRIMARY KEY, version bigint NOT NULL, expires_at ${instant} NOT NULL)`,
  ];
}

/** Those in PostgreSQL, as one text. */
export const NAIVE_TABLES = naiveTables().join('; ');

/** ShedLock: inserts, or takes over what has ended, by the clock of the application; in PostgreSQL by one statement. */
export async function shedLock(
  database: Database,
  name: string,
  owner: string,
  ttlMs: number,
  clock: ClientClock = {},
): Promise<boolean> {
  const now = localTime(clock);
  const values = [name, owner, later(now, ttlMs), now];
  if (database.dialect !== 'mysql') {
    return changed(
      database,
      `INSERT INTO shedlock (name, lock_until, locked_by) VALUES ($1, $3, $2)
       ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = excluded.locked_by
       WHERE shedlock.lock_until <= $4`,
      values,
    );
  }
  const insert = 'INSERT IGNORE INTO shedlock (name, lock_until, locked_by) VALUES ($1, $3, $2)';
  if (await changed(database, insert, values)) return true;
  const update = 'UPDATE shedlock SET lock_until = $3, locked_by = $2 WHERE name = $1 AND lock_until <= $4';
  return changed(database, update, values);
}

const DATABASE_TIME = `timezone('utc', CURRENT_TIMESTAMP)`;

/** ShedLock `usingDbTime`, in PostgreSQL. */
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
  return changed(database, `UPDATE shedlock SET lock_until = '1970-01-01' WHERE name = $1`, [name]);
}

/** Spring Integration: an update, then an insert, by the local time of the client. */
export async function springLock(
  database: Database,
  key: string,
  client: string,
  ttlMs: number,
  clock: ClientClock = {},
): Promise<boolean> {
  const now = localTime(clock);
  const values = [key, client, later(now, ttlMs), now];
  const isUpdated = await changed(
    database,
    `UPDATE int_lock SET client_id = $2, expired_after = $3
     WHERE lock_key = $1 AND (client_id = $2 OR expired_after < $4)`,
    values,
  );
  if (isUpdated) return true;
  const insert = 'INSERT INTO int_lock (lock_key, client_id, expired_after) VALUES ($1, $2, $3)';
  return changed(database, insert, values.slice(0, 3)).catch((error: { code?: string }) => {
    if (error.code === '23505' || error.code === 'ER_DUP_ENTRY') return false;
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
    await database.query('INSERT INTO verrou (name, owner, expiration) VALUES ($1, $2, $3)', [key, owner, expiration]);
    return true;
  } catch {
    return changed(database, 'UPDATE verrou SET owner = $2, expiration = $3 WHERE name = $1 AND expiration <= $4', [
      key,
      owner,
      expiration,
      now(),
    ]);
  }
}

/** Verrou: looks whose it is, then deletes it. */
export async function verrouUnlock(database: Database, key: string, owner: string): Promise<boolean> {
  const { rows } = await database.query('SELECT owner FROM verrou WHERE name = $1', [key]);
  if (rows[0]?.owner !== owner) return false;
  return changed(database, 'DELETE FROM verrou WHERE name = $1 AND owner = $2', [key, owner]);
}

/** Symfony's store of advisory locks, which are known by 32 bits of a checksum, and belong to the session. */
export async function advisoryLock(database: Database, key: string): Promise<boolean> {
  const { rows } = await database.query('SELECT pg_try_advisory_lock($1::bigint) AS locked', [crc32(key)]);
  return rows[0]?.locked === true;
}

/** A lock with a token that is counted in its row. @returns the token, undefined when it is taken */
export async function countedLock(database: Database, name: string, ttlMs: number): Promise<number | undefined> {
  if (database.dialect === 'mysql') return countedLockInMysql(database, name, ttlMs);
  const { rows } = await database.query(
    `INSERT INTO counted (name, version, expires_at) VALUES ($1, 1, clock_timestamp() + $2 * interval '1 millisecond')
     ON CONFLICT (name) DO UPDATE SET version = counted.version + 1, expires_at = excluded.expires_at
     WHERE counted.expires_at <= clock_timestamp() RETURNING version`,
    [name, ttlMs],
  );
  return rows[0] && Number(rows[0].version);
}

async function countedLockInMysql(database: Database, name: string, ttlMs: number): Promise<number | undefined> {
  await database.query("INSERT IGNORE INTO counted (name, version, expires_at) VALUES ($1, 0, '1970-01-01')", [name]);
  const isTaken = await changed(
    database,
    `UPDATE counted SET version = version + 1, expires_at = DATE_ADD(UTC_TIMESTAMP(3), INTERVAL $2 * 1000 MICROSECOND)
     WHERE name = $1 AND expires_at <= UTC_TIMESTAMP(3)`,
    [name, ttlMs],
  );
  if (!isTaken) return undefined;
  const { rows } = await database.query('SELECT version FROM counted WHERE name = $1', [name]);
  return Number(rows[0]!.version);
}

export function countedUnlock(database: Database, name: string): Promise<boolean> {
  return changed(database, `UPDATE counted SET expires_at = '1970-01-01' WHERE name = $1`, [name]);
}

/** What a sweep in two steps finds. */
export async function endedLocks(database: Database): Promise<string[]> {
  const now = database.dialect === 'mysql' ? 'UTC_TIMESTAMP(3)' : 'clock_timestamp()';
  const { rows } = await database.query(`SELECT name FROM counted WHERE expires_at <= ${now} ORDER BY name`);
  return rows.map(({ name }) => name as string);
}

/** What a sweep in two steps does with what it found. */
export async function deleteLocks(database: Database, names: readonly string[]): Promise<void> {
  for (const name of names) await database.query('DELETE FROM counted WHERE name = $1', [name]);
}

async function changed(database: Database, text: string, values: unknown[]): Promise<boolean> {
  return (await database.query(text, values)).rowCount === 1;
}

/** What a clock on the wall of the zone shows. */
function localTime({ now = Date.now, zone = 'UTC' }: ClientClock): string {
  return new Date(now()).toLocaleString('sv-SE', { timeZone: zone });
}

/** What that clock shows so much later, if nobody sets it. */
function later(local: string, ms: number): string {
  return new Date(Date.parse(`${local.replace(' ', 'T')}Z`) + ms).toISOString().slice(0, -1).replace('T', ' ');
}
