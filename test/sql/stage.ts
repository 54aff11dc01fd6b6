import pg from 'pg';
import { afterAll, onTestFinished } from 'vitest';
import type { LockDiagnosis, LockService } from 'nest-redis-lock';
import type { MysqlDiagnosis, PostgresDiagnosis, PostgresLockModuleOptions } from 'nest-redis-lock/sql';
import { openSqlLocks } from '../support/open-locks.js';
import { PostgresServer } from '../support/postgres-server.js';
import { until } from '../support/until.js';

/** Long enough for a busy machine, if nothing should be given up. */
export const PATIENT = { commandTimeoutMs: 30_000 };

/** A server for the tests of a file, which stops after them. */
export async function postgresOfFile(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  const server = await PostgresServer.start(settings);
  afterAll(() => server.stop());
  return server;
}

/** A server for one test. */
export async function ownPostgres(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  const server = await PostgresServer.start(settings);
  onTestFinished(() => server.stop());
  return server;
}

export const urlBy = ({ port }: { port: number }): string => `postgres://postgres@127.0.0.1:${port}/postgres`;

/** A connection as an application makes it, for its work. */
export async function connectTo({ url }: { url: string }, config: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, ...config });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  return client;
}

/** A session of another program that holds the rows of some locks until it ends its transaction. */
export async function sessionOn(server: { url: string }, ...keys: string[]): Promise<pg.Client> {
  const client = await connectTo(server);
  await client.query('BEGIN');
  await client.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = ANY($1) FOR UPDATE', [keys]);
  return client;
}

/** A lock service of this library on the table of a server, as another process would have it. */
export function locksOn(
  { url }: { url: string },
  options: Partial<PostgresLockModuleOptions> = {},
): Promise<LockService> {
  return openSqlLocks({ postgres: url, ...PATIENT, ...options });
}

/** The report of the doctor once the server answers within the second that it has. */
export function diagnosed(locks: LockService): Promise<LockDiagnosis<PostgresDiagnosis & MysqlDiagnosis>> {
  return until(
    async () => {
      const diagnosis = await locks.diagnose<PostgresDiagnosis & MysqlDiagnosis>();
      return diagnosis.nodes[0]!.problem?.startsWith('no answer') ? undefined : diagnosis;
    },
    { what: 'the server answers the doctor in time' },
  );
}

interface PostgresRow {
  readonly holder: string;
  readonly fence: number;
  readonly isHeld: boolean;
  readonly remainingMs: number;
  readonly waiters: readonly string[];
}

/** The row of a lock of this library. */
export async function rowOf(server: PostgresServer, key: string): Promise<PostgresRow | undefined> {
  const [row] = await server.query(
    `SELECT resource_lock_value AS holder, fence::float8 AS fence, expires_at > clock_timestamp() AS "isHeld", waiters,
       (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS "remainingMs"
     FROM resource_lock WHERE resource_lock_key = $1`,
    [key],
  );
  return row as PostgresRow | undefined;
}

/** Waits until this many processes wait for a lock. */
export async function queued(server: PostgresServer, key: string, count = 1): Promise<void> {
  const waiting = async () => (await rowOf(server, key))?.waiters.length ?? 0;
  await until(async () => (await waiting()) === count, { what: `${count} wait for the lock` });
}

/**
 * Ends the lease in the table, as if its holder had been paused that long: its transaction and its process do not know.
 */
export async function expire(server: PostgresServer, key: string): Promise<void> {
  await server.query(
    `UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 ms' WHERE resource_lock_key = $1`,
    [key],
  );
}

/** The sessions of locks that wait for a row lock, or for what they create. */
export async function blockedSessions(server: PostgresServer): Promise<number[]> {
  const sessions = await server.query(
    `SELECT pid FROM pg_stat_activity WHERE application_name = 'nest-redis-lock' AND wait_event_type = 'Lock'`,
  );
  return sessions.map(({ pid }) => pid as number);
}

/** Waits until a session of the locks waits. @returns its process id */
export function blocked(server: PostgresServer): Promise<number> {
  return until(async () => (await blockedSessions(server))[0], { what: 'a session waits for a lock' });
}

/** The sessions that listen, without a test message of their own on the way. */
export async function listening(server: PostgresServer): Promise<number[]> {
  const listens = `SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN nest_redis_lock%' AND state = 'idle'`;
  return (await server.query(listens)).map(({ pid }) => pid as number);
}
