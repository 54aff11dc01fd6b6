import { onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from '../../lib/compose/redis-lock-options.js';
import { openLocks as open } from '../../lib/compose/open-locks.js';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import type { SqlLockModuleOptions } from '../../lib/compose/sql-lock-options.js';
import type { LockService } from '../../lib/core/service/lock.service.js';

/** A lock service as the module would make it, without Nest. It closes when the test has finished, whatever is held. */
export async function openLocks(options: RedisLockModuleOptions, registration?: string): Promise<LockService> {
  const { service } = await open({ shutdownTimeoutMs: 0, ...options }, { registration });
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}

/** The same on a table of PostgreSQL, which is made if it is not there. */
export async function openSqlLocks(options: SqlLockModuleOptions): Promise<LockService> {
  const { service } = await composeSqlLocks({ shutdownTimeoutMs: 0, createTable: true, ...options }).open();
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}
