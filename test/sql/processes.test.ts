import { describe, expect, it } from 'vitest';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { onPGlite } from './pglite.js';
import { PATIENT, postgresOfFile } from './stage.js';

describe.each([
  ['a PostgreSQL', { postgres: (await postgresOfFile()).url, ...PATIENT }],
  ['a PGlite', await onPGlite()],
])('a lock in a table of %s', (_, options) => {
  it('that is detached is adopted by one of all calls that try, with a larger token, and its waiters get it after that [G829]', async () => {
    const [sender, receiver, third] = await Promise.all([1, 2, 3].map(() => openSqlLocks(options)));
    const key = freshKey();
    for (let round = 0; round < 20; round++) {
      const lock = await sender!.acquire(key);
      const parcel = await lock.detach({ ttlMs: 3_600_000 });
      expect(lock.isHeld).toBe(false);
      expect(await third!.inspect(key)).toMatchObject({ holder: { detached: true }, fencingToken: lock.fencingToken });
      await sender!.extend(parcel, { ttlMs: 1_800_000 });
      expect((await third!.inspect(key))!.remainingMs).toBeLessThanOrEqual(1_800_000);
      const waiting = third!.acquire(key, { waitMs: 600_000 });
      const tries = [receiver!.adopt(parcel), receiver!.adopt(parcel), sender!.adopt(parcel)];
      const outcomes = await Promise.allSettled(tries);
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      expect(winners).toHaveLength(1);
      const losers = outcomes.filter(({ status }) => status === 'rejected');
      const stolen = { reason: { code: 'LOCK_LOST', reason: 'stolen' } };
      expect(losers).toMatchObject([stolen, stolen]);
      const [adopted] = winners;
      expect(adopted!.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await sender!.release(parcel)).toBe(false);
      expect(await adopted!.release()).toBe(true);
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(adopted!.fencingToken);
      await next.release();
      await expect(receiver!.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    }
  });

  it("shows others how many calls wait in its holder's process, as of its last extension [G944]", async () => {
    const [holding, other] = [await openSqlLocks(options), await openSqlLocks(options)];
    const key = freshKey();
    const behind = async () => (await other.inspect(key))!.holders[0]!.waiters;
    const shows = (calls?: number) =>
      until(async () => (await behind()) === calls, { what: `it shows ${calls} calls` });
    const lock = await holding.acquire(key, { ttlMs: 900 });
    const giveUp = new AbortController();
    const waits = (signal?: AbortSignal) => holding.acquire(key, { ttlMs: 60_000, waitMs: 600_000, signal });
    const next = waits();
    const gone = [waits(giveUp.signal), waits(giveUp.signal)];
    await shows(3);
    expect((await other.list({ match: key })).locks).toMatchObject([
      { waitingProcesses: [], holders: [{ waiters: 3 }] },
    ]);
    giveUp.abort();
    expect(await Promise.allSettled(gone)).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }]);
    await shows(1);
    await lock.release();
    const last = await next;
    const theirs = other.acquire(key, { waitMs: 600_000 });
    await last.release();
    const { owner } = await theirs;
    expect(await holding.inspect(key)).toMatchObject({ holder: { owner }, holders: [{ waiters: undefined }] });
    await (await theirs).release();
  });
});
