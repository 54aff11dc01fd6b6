import { onTestFinished } from 'vitest';
import type { LockBackend } from '../../lib/testing/index.js';
import type { LockService } from '../../lib/index.js';
import { connectedSql } from '../support/claims.js';
import { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

/** Long enough for a machine that does other work, where nothing is to be given up. */
export const PATIENT = { commandTimeoutMs: 30_000 };

let started: Promise<MariaDbServer> | undefined;

/** The server of this process: it dies with that. */
export function mariaDb(): Promise<MariaDbServer> {
  started ??= MariaDbServer.start();
  return started;
}

/** A server of one test. */
export async function ownMariaDb(settings: Readonly<Record<string, string>> = {}): Promise<MariaDbServer> {
  const server = await MariaDbServer.start(settings);
  onTestFinished(() => server.stop());
  return server;
}

/** A service, as another process would have it. */
export async function openAnother(options: { table?: string; ttlMs?: number } = {}): Promise<LockService> {
  return openSqlLocks({ mysql: (await mariaDb()).url, ...PATIENT, ...options });
}

export async function openBackend(url: string, commandTimeoutMs = PATIENT.commandTimeoutMs): Promise<LockBackend> {
  const backend = await connectedSql({ mysql: url, commandTimeoutMs });
  onTestFinished(() => backend.close());
  return backend;
}

/** Waits until the lease of a lock has ended by itself, as its holder does not extend it. */
export async function leaseHasEnded(key: string): Promise<void> {
  const server = await mariaDb();
  const over = 'SELECT 1 FROM resource_lock WHERE resource_lock_key = ? AND expires_at <= UTC_TIMESTAMP(6)';
  await until(async () => (await server.query(over, [Buffer.from(key)])).length === 1, { what: 'the lease has ended' });
}
