import { guard } from 'nest-redis-lock/sql';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { onPGlite } from './pglite.js';
import { postgresOfFile } from './stage.js';

const server = await postgresOfFile();

const onServer = async () => ({ postgres: server.url, commandTimeoutMs: 20_000 });
const HOUR = { ttlMs: 3_600_000 };
const LOST = (reason: string) => ({ code: 'LOCK_LOST', reason });

describe.each([
  ['a PostgreSQL', onServer],
  ['a PGlite', onPGlite],
])('a lock in a table of %s', (_, options) => {
  it('that is detached is adopted by one of all calls that try, with a larger token, and its waiters get it after that [G829]', async () => {
    const settings = await options();
    const [sender, receiver, third] = await Promise.all([1, 2, 3].map(() => openSqlLocks(settings)));
    const key = freshKey();
    for (let round = 0; round < 20; round++) {
      const lock = await sender!.acquire(key);
      const parcel = await lock.detach(HOUR);
      expect(lock.isHeld).toBe(false);
      expect(await third!.inspect(key)).toMatchObject({ holder: { detached: true }, fencingToken: lock.fencingToken });
      await sender!.extend(parcel, { ttlMs: 1_800_000 });
      expect((await third!.inspect(key))!.remainingMs).toBeLessThanOrEqual(1_800_000);
      const waiting = third!.acquire(key, { waitMs: 600_000 });
      const tries = [receiver!.adopt(parcel), receiver!.adopt(parcel), sender!.adopt(parcel)];
      const outcomes = await Promise.allSettled(tries);
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      expect(winners).toHaveLength(1);
      expect(outcomes.filter(({ status }) => status === 'rejected')).toMatchObject([
        { reason: LOST('stolen') },
        { reason: LOST('stolen') },
      ]);
      const [adopted] = winners;
      expect(adopted!.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await sender!.release(parcel)).toBe(false);
      expect(await adopted!.release()).toBe(true);
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(adopted!.fencingToken);
      await next.release();
      await expect(receiver!.adopt(parcel)).rejects.toMatchObject(LOST('expired'));
    }
  });
});

it('a lock that a transaction guards cannot be detached', async () => {
  const locks: LockService = await openSqlLocks(await onServer());
  const client = new pg.Client(server.url);
  await client.connect();
  onTestFinished(() => client.end());
  const lock = await locks.acquire(freshKey());
  await client.query('BEGIN');
  await guard(lock, client);
  await expect(lock.detach(HOUR)).rejects.toMatchObject({
    code: 'LOCK_OPTIONS',
    message: expect.stringContaining('guard was called for it') as string,
  });
  expect(lock.isHeld).toBe(true);
  await client.query('ROLLBACK');
  await lock.release();
});
