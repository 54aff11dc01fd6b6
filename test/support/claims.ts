import { openBackend } from '../../lib/compose/open-backend.js';
import type {
  AcquireOutcome,
  Claim,
  ExtendOutcome,
  LockBackend,
  Waiting,
} from '../../lib/core/backend/lock-backend.js';
import type { RedisLockModuleOptions } from '../../lib/api/options.js';
import { processName } from '../../lib/api/holder.js';
import { resolveOptions } from '../../lib/core/options/resolve-options.js';

export const now = (): number => performance.now();

/** A backend as the module opens it, connected. */
export async function connected(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await opened(options);
  await backend.connect(15_000);
  return backend;
}

/** A backend as the module opens it with `lazyConnect`. */
export function opened(options: RedisLockModuleOptions): Promise<LockBackend> {
  return openBackend(resolveOptions(options), now, processName());
}

let sequence = 0;

/** A key that no other test of the run uses. */
export function freshKey(hint = 'key'): string {
  return `${hint}-${process.pid}-${++sequence}`;
}

/** An attempt of its own: no two have the same owner value. */
export function claimOn(key: string, ttlMs = 20_000): Claim {
  return { key, owner: `host/1/random/${++sequence}`, ttlMs };
}

/** One attempt, as a promise. */
export function acquireOn(backend: LockBackend, claim: Claim, waiting?: Waiting): Promise<AcquireOutcome> {
  return new Promise((resolve) => backend.acquire(claim, waiting, resolve));
}

/** One extension, as a promise. */
export function extendOn(backend: LockBackend, claim: Claim): Promise<ExtendOutcome> {
  return new Promise((resolve) => backend.extend(claim, resolve));
}

/** Acquires, and fails the test when that is not granted. */
export async function granted(
  backend: LockBackend,
  claim: Claim,
): Promise<Extract<AcquireOutcome, { status: 'acquired' }>> {
  const outcome = await acquireOn(backend, claim);
  if (outcome.status !== 'acquired') throw new Error(`not acquired: ${JSON.stringify(outcome)}`);
  return outcome;
}
