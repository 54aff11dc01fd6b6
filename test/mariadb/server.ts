import { createConnection, type Connection } from 'mysql2/promise';
import { expect, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import type { MysqlLockModuleOptions } from 'nest-redis-lock/sql';
import type { LockBackend } from 'nest-redis-lock/testing';
import { MysqlNode } from '../../lib/stores/sql/mysql/mysql-node.js';
import { openMysql } from '../../lib/stores/sql/mysql/mysql-source.js';
import { connectedSql, now } from '../support/claims.js';
import { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';

/** Long enough for a busy machine, if nothing should be given up. */
export const PATIENT = { commandTimeoutMs: 30_000 };

let started: Promise<MariaDbServer> | undefined;

/** The server of this process: it dies with the process. */
export function mariaDb(): Promise<MariaDbServer> {
  started ??= MariaDbServer.start();
  return started;
}

/** What MariaDB and MySQL name differently. */
const KINDS = {
  MariaDB: {
    /**
     * The settings of a server without TLS, and of a server with semi-synchronous replication, whose variables have
     * this prefix.
     */
    withoutTls: { ssl: '0' },
    withSemiSync: {},
    semiSync: 'rpl_semi_sync_master',
    /** The refusal for a user who may not update the table. */
    deniedFirst: 'UPDATE',
  },
  MySQL: {
    withoutTls: { 'tls-version': '' },
    withSemiSync: { 'plugin-load-add': 'semisync_source.so' },
    semiSync: 'rpl_semi_sync_source',
    deniedFirst: 'SELECT with locking clause',
  },
};

/** Which of the two the server of this process is, by its own report. */
export async function kindOfServer() {
  const [row] = await (await mariaDb()).query('SELECT VERSION() AS version');
  const version = String(row!.version);
  const store = version.includes('MariaDB') ? 'MariaDB' : 'MySQL';
  return { store, version, ...KINDS[store] };
}

/** A server of one test. */
export async function ownMariaDb(settings: Readonly<Record<string, string>> = {}): Promise<MariaDbServer> {
  const server = await MariaDbServer.start(settings);
  onTestFinished(() => server.stop());
  return server;
}

export const urlBy = ({ port }: { port: number }): string => `mysql://root@127.0.0.1:${port}/shop`;

/** A connection of an application. */
export async function connectTo({ url }: { url: string }): Promise<Connection> {
  const connection = await createConnection(url);
  connection.on('error', () => {});
  onTestFinished(() => connection.destroy());
  return connection;
}

/** A session of another program that holds the rows of some locks until it ends its transaction. */
export async function sessionOn(server: MariaDbServer, ...keys: string[]): Promise<Connection> {
  const session = await connectTo(server);
  await session.beginTransaction();
  for (const key of keys)
    await session.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = ? FOR UPDATE', [Buffer.from(key)]);
  return session;
}

/** A lock service, as another process would have it. */
export function locksOn({ url }: { url: string }, options: Partial<MysqlLockModuleOptions> = {}): Promise<LockService> {
  return openSqlLocks({ mysql: url, ...PATIENT, ...options });
}

/** The same on the server of this process. */
export async function openAnother(options: Partial<MysqlLockModuleOptions> = {}): Promise<LockService> {
  return locksOn(await mariaDb(), options);
}

export async function openBackend(url: string, commandTimeoutMs = PATIENT.commandTimeoutMs): Promise<LockBackend> {
  const backend = await connectedSql({ mysql: url, commandTimeoutMs });
  onTestFinished(() => backend.close());
  return backend;
}

/** Deletes the rows of locks that were free for this long, like the janitor. */
export async function sweeper({ url }: MariaDbServer, { table = '`resource_lock`', keepMs = 0 } = {}) {
  const settings = { table, createTable: false, processName: 'host/1/test', now };
  const node = new MysqlNode(await openMysql(url, PATIENT.commandTimeoutMs), { ...settings, ...PATIENT });
  onTestFinished(() => node.close());
  expect(await node.connection.ready(30_000)).toBeUndefined();
  return (behind = '') => node.sweep(behind, keepMs);
}

/** The row of a lock of this library. */
export async function rowOf(server: MariaDbServer, key: string) {
  const [row] = await server.query(
    `SELECT CAST(resource_lock_value AS char) AS holder, fence, expires_at > UTC_TIMESTAMP(6) AS isHeld,
       TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) / 1000 AS remainingMs
     FROM resource_lock WHERE resource_lock_key = ?`,
    [Buffer.from(key)],
  );
  if (!row) return undefined;
  const { holder, fence, isHeld, remainingMs } = row;
  return {
    holder: String(holder),
    fence: Number(fence),
    isHeld: Number(isHeld) === 1,
    remainingMs: Number(remainingMs),
  };
}

/** Waits until the lease of a lock has expired, since its holder does not extend it. */
export async function leaseHasEnded(key: string): Promise<void> {
  const server = await mariaDb();
  await until(async () => (await rowOf(server, key))?.isHeld === false, { what: 'the lease has ended' });
}
