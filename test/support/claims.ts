import { onTestFinished } from 'vitest';
import type { SqlLockModuleOptions } from '../../lib/sql/index.js';
import type { AcquireOutcome, LockBackend, Place } from '../../lib/testing/index.js';
import type { RedisLockModuleOptions } from '../../lib/index.js';
import { resolveOptions } from '../../lib/compose/composition.js';
import { REDIS } from '../../lib/compose/redis-lock-options.js';
import { SQL } from '../../lib/compose/sql-lock-options.js';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import { processName } from '../../lib/compose/process-name.js';
import { acquireOn, claimOn, freshKey, granted, releaseOn } from '../../lib/testing/claims.js';
import { until } from '../../lib/testing/until.js';

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

/** The same, closed when the test has finished. */
export async function backendOf(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await connected(options);
  onTestFinished(() => backend.close());
  return backend;
}

/** Takes a lock and releases it: from then on each connection exists, and the servers know the scripts. */
export async function warmUp(backend: LockBackend): Promise<void> {
  const claim = claimOn(freshKey());
  await granted(backend, claim);
  await releaseOn(backend, claim);
}

/** An attempt at a lock that is free. */
export function attempt(backend: LockBackend): Promise<AcquireOutcome> {
  return acquireOn(backend, claimOn(freshKey()));
}

export async function untilGranted(backend: LockBackend): Promise<void> {
  await until(async () => (await attempt(backend)).status === 'acquired', { what: 'a lock is granted' });
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
