import { randomUUID } from 'node:crypto';
import {
  EXCLUSIVE,
  type AcquireOutcome,
  type CallsBehind,
  type ExtendOutcome,
  type Grant,
  type Hold,
  type Holder,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type TransferOutcome,
} from '../core/backend/lock-backend.js';
import { monotonic } from '../core/time/clock.js';

/** Distinguishes the keys of this run from keys that an earlier run may have left in the store. */
const RUN = randomUUID().slice(0, 8);
let sequence = 0;

/** A key that no other test of the run uses. */
export function freshKey(hint = 'key'): string {
  return `${hint}-${RUN}-${++sequence}`;
}

/** A lock that a test requests, and the grant that it got last. */
export interface Claim {
  key: string;
  owner: string;
  ttlMs: number;
  /** @default exclusive */
  hold?: Hold;
  /** Owner values of further attempts, which get permits in the same step as long as permits are free. */
  others?: readonly string[];
  grant?: Grant;
}

/** Makes a claim with an owner value of its own. */
export function claimOn(key: string, ttlMs = 20_000, hold: Hold = EXCLUSIVE): Claim & { hold: Hold } {
  return { key, hold, owner: `host/1/random/${++sequence}`, ttlMs };
}

/** Makes one attempt to acquire the lock. */
export function acquireOn(backend: LockBackend, claim: Claim, place?: Place): Promise<AcquireOutcome> {
  const { key, hold = EXCLUSIVE, owner, others, ttlMs } = claim;
  const request = { key, hold, owner, others, ttlMs, place, turns: place?.turns };
  return new Promise((resolve) => {
    backend.acquire(request, (outcome) => {
      if (outcome.status === 'acquired') claim.grant = outcome.grant;
      resolve(outcome);
    });
  });
}

/** Extends the lock once, to the ttl of the claim. */
export function extendOn(backend: LockBackend, claim: Claim, waiting?: CallsBehind): Promise<ExtendOutcome> {
  return new Promise((resolve) => backend.extend({ grant: grantOf(claim), ttlMs: claim.ttlMs, waiting }, resolve));
}

/** Returns the first holder of the lock. */
export async function holderOn(backend: LockBackend, key: string): Promise<Holder | undefined> {
  return (await backend.inspect(key))?.holders[0];
}

/** Releases the lock once. @param keptForMs how long the store keeps it instead */
export function releaseOn(backend: LockBackend, claim: Claim, keptForMs?: number): Promise<ReleaseOutcome> {
  const keepUntil = keptForMs === undefined ? undefined : monotonic() + keptForMs;
  return new Promise((resolve) => backend.release(grantOf(claim), { keepUntil }, resolve));
}

/**
 * Transfers a lock once, from one owner value to another.
 * @throws Error if the backend has no `transfer`
 */
export function transferOn(
  backend: LockBackend,
  from: Claim,
  to: Claim,
  { mints, atLeast }: { mints: boolean; atLeast?: boolean },
): Promise<TransferOutcome> {
  if (!backend.transfer) throw new Error(`the backend has no transfer: ${backend.whyNoTransfer}`);
  return backend.transfer({ key: from.key, from: from.owner, to: to.owner, ttlMs: to.ttlMs, atLeast, mints });
}

/** The grant of a claim; without one, a grant that another process could make from the same key and owner value. */
export function grantOf({ grant, key, owner, hold }: Claim): Grant {
  return grant ?? { key, owner, hold };
}

/** Acquires the lock. If the backend does not grant it, the test fails. */
export async function granted(
  backend: LockBackend,
  claim: Claim,
): Promise<{ fencingToken: number; lastToken: number; sentAt: number }> {
  const outcome = await acquireOn(backend, claim);
  if (outcome.status !== 'acquired') throw new Error(`not acquired: ${JSON.stringify(outcome)}`);
  const { fencingToken = NaN, lastToken = fencingToken } = outcome.grant;
  return { fencingToken, lastToken, sentAt: outcome.sentAt };
}
