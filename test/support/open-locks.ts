import { onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from '../../lib/compose/redis-lock-options.js';
import { resolveOptions } from '../../lib/compose/redis-lock-options.js';
import { LockService } from '../../lib/core/service/lock.service.js';

/** A lock service as the module would make it, without Nest. It closes when the test has finished, whatever is held. */
export async function openLocks(options: RedisLockModuleOptions): Promise<LockService> {
  const [locks] = await LockService.open(resolveOptions({ shutdownTimeoutMs: 0, ...options }));
  onTestFinished(() => locks.onApplicationShutdown());
  return locks;
}
