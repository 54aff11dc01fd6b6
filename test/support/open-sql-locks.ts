import { onTestFinished } from 'vitest';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import type { SqlLockModuleOptions } from '../../lib/compose/sql-lock-options.js';
import type { LockService } from '../../lib/core/service/lock.service.js';

/** A lock service on a table, which is made if it is not there, as the module would make it. It closes when the test has finished. */
export async function openSqlLocks(options: SqlLockModuleOptions): Promise<LockService> {
  const { service } = await composeSqlLocks({ createTable: true, shutdownTimeoutMs: 0, ...options }).open();
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}
