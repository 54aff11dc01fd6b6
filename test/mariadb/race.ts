import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { acquireOn, claimOn, extendOn, now, releaseOn } from '../support/claims.js';
import { RaceRecord } from '../sql/race-record.js';
import { randomOf } from '../support/random.js';
import { openBackend } from './server.js';

/** `RACE_SECONDS=600 RACE_CONNECTIONS=50 RACE_SEED=7 npm run test:servers -- mariadb` races for longer, and prints its figures. */
const { RACE_CONNECTIONS = 16, RACE_SECONDS = 5, RACE_SEED = 1 } = process.env;
export const RACE_TIMEOUT_MS = Number(RACE_SECONDS) * 1_000 + 300_000;

/**
 * Connections race for few locks of a server: there are never two holders, and each token is greater than all before.
 */
export async function race(url: string): Promise<void> {
  const endsAt = now() + Number(RACE_SECONDS) * 1_000;
  const record = new RaceRecord();
  const problems: string[] = [];
  let refused = 0;

  const takes = async (backend: LockBackend, key: string, random: () => number): Promise<void> => {
    const claim = claimOn(key, random() < 0.2 ? 15 : 5_000);
    const sentAt = now();
    const outcome = await acquireOn(backend, claim);
    if (outcome.status === 'contended') refused++;
    if (outcome.status === 'unavailable') problems.push(String(outcome.causes[0]));
    if (outcome.status !== 'acquired') return;
    const { owner } = claim;
    const { fencingToken = 0, lastToken = fencingToken } = claim.grant!;
    record.grant({ key, owner, first: fencingToken, last: lastToken, sentAt });
    const use = record.begins(key, owner, sentAt, claim.ttlMs);
    if (!use) return; // its lease may have ended before this answer was read
    await sleep(random() * 5);
    if (random() < 0.2 && claim.ttlMs > 100) {
      const extended = await extendOn(backend, claim);
      // It may have been delayed until the lease had ended.
      if (extended.status !== 'extended' && now() < use.until)
        problems.push(`an extension of ${key}: ${extended.status}`);
    }
    if (claim.ttlMs < 100 && random() < 0.1) return sleep(30); // it is not released
    use.ends(now());
    const askedAt = now();
    if (random() > 0.05) await releaseOn(backend, claim);
    else if (await backend.forceRelease(key, owner)) record.seized(key, owner, askedAt);
  };

  await Promise.all(
    Array.from({ length: Number(RACE_CONNECTIONS) }, async (_, at) => {
      const backend = await openBackend(url);
      const random = randomOf(Number(RACE_SEED) + at);
      while (now() < endsAt) {
        const several = 1 + Math.floor(random() * 3);
        const keys = Array.from({ length: several }, () => `hot-${Math.floor(random() * 8)}`);
        await Promise.all([...new Set(keys)].map((key) => takes(backend, key, random)));
      }
    }),
  );
  problems.push(...record.problems());
  const counts = { grants: record.grants.length, refused, forced: record.forced, late: record.late };
  if (process.env.RACE_SECONDS !== undefined) console.log(counts, { problems: problems.length });
  expect(problems.slice(0, 5)).toEqual([]);
  for (const count of [counts.grants, counts.refused, counts.forced]) expect(count).toBeGreaterThan(0);
}
