import { onTestFinished } from 'vitest';
import type { LockBackend } from '../../lib/testing/index.js';
import { LockService, type LockServiceOptions, type RedisLockModuleOptions } from '../../lib/index.js';
import type { SqlLockModuleOptions } from '../../lib/sql/index.js';
import { openLocks as open } from '../../lib/compose/open-locks.js';
import { composeLocks } from '../../lib/compose/composition.js';
import { SQL } from '../../lib/compose/sql-lock-options.js';
import { processName } from '../../lib/compose/process-name.js';
import { resolveServiceOptions } from '../../lib/core/options/service-options.js';
import { Shutdown } from '../../lib/core/service/shutdown.js';
import { now } from './claims.js';

/**
 * A lock service like the one of the module, without Nest. It closes when the test has finished, even if locks are
 * held.
 */
export async function openLocks(options: RedisLockModuleOptions, registration?: string): Promise<LockService> {
  const { service } = await open({ shutdownTimeoutMs: 0, ...options }, { registration });
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}

/** The same on a table of PostgreSQL, which is created if it does not exist. */
export async function openSqlLocks(options: SqlLockModuleOptions): Promise<LockService> {
  const { service } = await composeLocks(SQL, { shutdownTimeoutMs: 0, createTable: true, ...options }).open();
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}

/** The same on a backend of the test. */
export function serviceOn(backend: LockBackend, given: LockServiceOptions = {}): LockService {
  const options = resolveServiceOptions({ shutdownTimeoutMs: 0, ...given });
  const parts = { registration: 'default', now, processName: processName(), shutdown: new Shutdown() };
  const service = LockService.of({ backend, options, ...parts });
  onTestFinished(() => service.onApplicationShutdown());
  return service;
}
