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

/** Tells the keys of this process from those that an earlier one may have left in the store. */
const RUN = randomUUID().slice(0, 8);
let sequence = 0;

/** A key that no other test of the run uses. */
export function freshKey(hint = 'key'): string {
  return `${hint}-${RUN}-${++sequence}`;
}

/** What a test wants to hold, and was granted at last. */
export interface Claim {
  key: string;
  owner: string;
  ttlMs: number;
  /** @default exclusive */
  hold?: Hold;
  /** Owner values of further attempts that are granted with it, as far as there is room. */
  others?: readonly string[];
  grant?: Grant;
}

/** An attempt of its own: no two have the same owner value. */
export function claimOn(key: string, ttlMs = 20_000, hold: Hold = EXCLUSIVE): Claim & { hold: Hold } {
  return { key, hold, owner: `host/1/random/${++sequence}`, ttlMs };
}

/** One attempt, as a promise. */
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

/** One extension to the ttl of the claim, as a promise. */
export function extendOn(backend: LockBackend, claim: Claim, waiting?: CallsBehind): Promise<ExtendOutcome> {
  return new Promise((resolve) => backend.extend({ grant: grantOf(claim), ttlMs: claim.ttlMs, waiting }, resolve));
}

/** Who holds the lock. */
export async function holderOn(backend: LockBackend, key: string): Promise<Holder | undefined> {
  return (await backend.inspect(key))?.holders[0];
}

/** One release, as a promise. @param keptForMs how long it is kept instead */
export function releaseOn(backend: LockBackend, claim: Claim, keptForMs?: number): Promise<ReleaseOutcome> {
  const keepUntil = keptForMs === undefined ? undefined : monotonic() + keptForMs;
  return new Promise((resolve) => backend.release(grantOf(claim), { keepUntil }, resolve));
}

/**
 * One transfer of a lock, from one owner value to another.
 * @throws Error for a backend that cannot
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

/** The grant of a claim, or one that another process would make from the same key and owner value. */
export function grantOf({ grant, key, owner, hold }: Claim): Grant {
  return grant ?? { key, owner, hold };
}

/** Acquires, and fails the test when that is not granted. */
export async function granted(
  backend: LockBackend,
  claim: Claim,
): Promise<{ fencingToken: number; lastToken: number; sentAt: number }> {
  const outcome = await acquireOn(backend, claim);
  if (outcome.status !== 'acquired') throw new Error(`not acquired: ${JSON.stringify(outcome)}`);
  const { fencingToken = NaN, lastToken = fencingToken } = outcome.grant;
  return { fencingToken, lastToken, sentAt: outcome.sentAt };
}
