import type { SqlLockModuleOptions } from '../../lib/sql/index.js';
import type { LockBackend, Place } from '../../lib/testing/index.js';
import type { RedisLockModuleOptions } from '../../lib/index.js';
import { resolveOptions } from '../../lib/compose/composition.js';
import { REDIS } from '../../lib/compose/redis-lock-options.js';
import { SQL } from '../../lib/compose/sql-lock-options.js';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import { processName } from '../../lib/compose/process-name.js';

export {
  acquireOn,
  claimOn,
  extendOn,
  freshKey,
  granted,
  grantOf,
  holderOn,
  releaseOn,
  transferOn,
  type Claim,
} from '../../lib/testing/claims.js';

export const now = (): number => performance.now();

/** A backend as the module opens it, connected. */
export async function connected(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await opened(options);
  await backend.connect(15_000);
  return backend;
}

/** A backend as the module opens it with `lazyConnect`. */
export function opened(options: RedisLockModuleOptions): Promise<LockBackend> {
  return REDIS.open(resolveOptions(REDIS, options), now, processName());
}

/** A backend on a table of PostgreSQL, which is created if it does not exist. */
export async function connectedSql(options: SqlLockModuleOptions): Promise<LockBackend> {
  const backend = await SQL.open(resolveOptions(SQL, { createTable: true, ...options }), now, processName());
  await backend.connect(15_000);
  return backend;
}

/**
 * The place of a waiting attempt.
 * @param turns the number of turns that it wants
 */
export function placeOf(ticket: string, turns = 1, hold = EXCLUSIVE): Place {
  return { ticket, hold, turns, calls: 1, arrivedAt: now(), isTaken: false };
}
