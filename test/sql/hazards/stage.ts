import pg from 'pg';
import { onTestFinished } from 'vitest';
import type { PostgresLockModuleOptions } from '../../../lib/sql/index.js';
import type { LockService } from '../../../lib/index.js';
import { openSqlLocks } from '../../support/open-locks.js';
import type { PostgresServer } from '../../support/postgres-server.js';
import { until } from '../../support/until.js';

/** Long enough for a machine that does other work, where nothing is to be given up. */
export const PATIENT = { commandTimeoutMs: 30_000 };

/** A connection as an application makes it, for the naive locks and for its work. */
export async function connectTo({ url }: { url: string }, config: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, ...config });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  return client;
}

/** A lock service of this library on the table of a server. */
export function locksOn(
  { url }: { url: string },
  options: Partial<PostgresLockModuleOptions> = {},
): Promise<LockService> {
  return openSqlLocks({ postgres: url, ...PATIENT, ...options });
}

/** The row of a lock of this library. */
export async function rowOf(
  server: PostgresServer,
  key: string,
): Promise<{ holder: string; fence: number; isHeld: boolean; remainingMs: number } | undefined> {
  const [row] = await server.query(
    `SELECT resource_lock_value AS holder, fence::float8 AS fence, expires_at > clock_timestamp() AS "isHeld",
       (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS "remainingMs"
     FROM resource_lock WHERE resource_lock_key = $1`,
    [key],
  );
  return row as Awaited<ReturnType<typeof rowOf>>;
}

/** Lets the lease of a lock of this library end. */
export async function expire(server: PostgresServer, key: string): Promise<void> {
  await server.query(
    `UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 ms' WHERE resource_lock_key = $1`,
    [key],
  );
}

/** How many sessions wait for a lock of a row, or of what they create. @param name of their application */
export async function blockedSessions(server: PostgresServer, name = 'nest-redis-lock'): Promise<number> {
  const sessions = await server.query(
    `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`,
    [name],
  );
  return sessions.length;
}

export async function blocked(server: PostgresServer, name?: string): Promise<void> {
  await until(async () => (await blockedSessions(server, name)) > 0, { what: 'a session waits for a lock' });
}
