import type { LockBackend } from '../core/backend/lock-backend.js';
import { Clock } from '../core/time/clock.js';
import { SingleNodeBackend } from '../stores/node/single-node.backend.js';
import { reportOnMysql } from '../stores/sql/mysql/mysql-doctor.js';
import { MysqlNode } from '../stores/sql/mysql/mysql-node.js';
import { openMysql } from '../stores/sql/mysql/mysql-source.js';
import { quotedTable } from '../stores/sql/options.js';
import { reportOnPostgres } from '../stores/sql/postgres/postgres-doctor.js';
import { PostgresNode } from '../stores/sql/postgres/postgres-node.js';
import { openPostgres } from '../stores/sql/postgres/postgres-source.js';
import { differingIn, openService, type ComposedLocks, type OpenedLocks, type Opening } from './composition.js';
import { processName } from './process-name.js';
import {
  isSameDatabase,
  resolveSqlLockOptions,
  type ResolvedSqlLockOptions,
  type SqlLockModuleOptions,
} from './sql-lock-options.js';

/** The composition of `SqlLockModule`. @throws LockOptionsError */
export function composeSqlLocks(options: SqlLockModuleOptions, registration?: string): ComposedLocks {
  return new SqlLocks(resolveSqlLockOptions(options, registration));
}

class SqlLocks implements ComposedLocks {
  constructor(private readonly options: ResolvedSqlLockOptions) {}

  get registration(): string {
    return this.options.registration;
  }

  differencesFrom(other: ComposedLocks): string[] {
    const { backend, ...settings } = this.options;
    if (!(other instanceof SqlLocks)) return [backend.kind];
    const { backend: otherBackend, ...otherSettings } = other.options;
    const differing = differingIn(settings, otherSettings);
    return isSameDatabase(backend, otherBackend) ? differing : [backend.kind, ...differing];
  }

  async open(opening?: Opening): Promise<OpenedLocks> {
    const { options, registration } = this;
    const { now } = new Clock();
    const name = processName();
    const backend = await openSqlBackend(options, now, name);
    return openService(backend, { options, registration, now, processName: name }, opening);
  }
}

/**
 * Makes the backend for the options; connects to nothing yet.
 * @param now the clock that `sentAt` is read from, in milliseconds
 * @param processName the beginning of the owner values of this service
 */
export async function openSqlBackend(
  { backend, commandTimeoutMs, createTable, keepMs, table }: ResolvedSqlLockOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const quoted = quotedTable(table, backend.kind);
  const settings = { table: quoted, createTable, commandTimeoutMs, keepMs, processName, now };
  if (backend.kind === 'mysql') {
    const source = await openMysql(backend.source, commandTimeoutMs, table.includes('.'));
    const node = new MysqlNode(source, settings);
    return new SingleNodeBackend(node, commandTimeoutMs, now, undefined, (timeoutMs) =>
      reportOnMysql(node, quoted, timeoutMs),
    );
  }
  const source = await openPostgres(backend.source, commandTimeoutMs);
  const node = new PostgresNode(source, settings);
  return new SingleNodeBackend(node, commandTimeoutMs, now, undefined, (timeoutMs) =>
    reportOnPostgres(node, quoted, timeoutMs),
  );
}
