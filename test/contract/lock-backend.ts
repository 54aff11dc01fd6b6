import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Hold, LockBackend } from '../../lib/core/backend/lock-backend.js';
import { until } from '../support/until.js';
import {
  acquireOn,
  claimOn,
  extendOn,
  freshKey,
  granted,
  holderOn,
  now,
  releaseOn,
  type Claim,
} from '../support/claims.js';

/** A backend under test, whose clock is `now` of test/support/claims.ts. */
export interface Subject {
  backend: LockBackend;
  /** Checks what the store still has of a key whose lock was held and given back. */
  checkLeft?: () => Promise<void>;
  /** Called after the backend was closed. */
  tearDown?: () => unknown;
}

/**
 * The contract of lock backends: run it for a new one, which `setUp` connects. It says nothing of wait queues, which are a
 * capability, nor of what happens when the store fails.
 */
export function describeBackend(name: string, setUp: () => Promise<Subject>): void {
  describe(`The lock backend: ${name}`, () => {
    let subject: Subject;
    let backend: LockBackend;

    beforeAll(async () => {
      subject = await setUp();
      backend = subject.backend;
    });
    afterAll(async () => {
      await backend.close();
      await subject.tearDown?.();
    });

    /** Tries until the lock is granted, each time with an owner of its own. @returns when that attempt began */
    const takes = (claim: Claim) =>
      until(
        async () => {
          const attempt = claimOn(claim.key, claim.ttlMs);
          const sentAt = now();
          const { status } = await acquireOn(backend, attempt);
          return status === 'acquired' ? Object.assign(claim, attempt, { sentAt }) : undefined;
        },
        { what: 'the lock is free' },
      );

    it('a free lock is granted to one attempt, and the other learns who holds it and for how long', async () => {
      const winner = claimOn(freshKey());
      const before = now();
      const won = await granted(backend, winner);
      expect(won.sentAt).toBeGreaterThanOrEqual(before);
      expect(won.sentAt).toBeLessThanOrEqual(now());

      const lost = await acquireOn(backend, claimOn(winner.key));
      expect(lost).toEqual({
        status: 'contended',
        owner: winner.owner,
        remainingMs: expect.any(Number),
        queued: false,
      });
      expect((lost as { remainingMs: number }).remainingMs).toBeGreaterThan(winner.ttlMs / 2);
      expect((lost as { remainingMs: number }).remainingMs).toBeLessThanOrEqual(winner.ttlMs);
      await releaseOn(backend, winner);
    });

    it('one of many simultaneous attempts gets the lock', async () => {
      const key = freshKey();
      const claims = Array.from({ length: 20 }, () => claimOn(key));
      const outcomes = await Promise.all(claims.map((claim) => acquireOn(backend, claim)));
      expect(outcomes.filter(({ status }) => status === 'acquired')).toHaveLength(1);
      expect(outcomes.filter(({ status }) => status === 'contended')).toHaveLength(19);
      const winner = claims[outcomes.findIndex(({ status }) => status === 'acquired')]!;
      expect((await holderOn(backend, key))?.owner).toBe(winner.owner);
      expect(await releaseOn(backend, winner)).toEqual({ status: 'released' });
    });

    it('an attempt to hold a lock in a way that the store does not know is refused with a sentence of its own', async () => {
      const claim = { ...claimOn(freshKey()), hold: { mode: 'sideways' } as unknown as Hold };
      const cause = expect.objectContaining({ problem: expect.stringContaining('exclusive') });
      expect(await acquireOn(backend, claim)).toEqual({ status: 'unavailable', causes: [cause] });
      expect(await backend.inspect(claim.key)).toBeUndefined();
    });

    it('a lock is free again after its release', async () => {
      const first = claimOn(freshKey());
      await granted(backend, first);
      expect(await releaseOn(backend, first)).toEqual({ status: 'released' });
      expect(await holderOn(backend, first.key)).toBeUndefined();
      const second = claimOn(first.key);
      await granted(backend, second);
      await releaseOn(backend, second);
    });

    it('a second release, and that of an attempt that did not win, find nothing to release', async () => {
      const winner = claimOn(freshKey());
      await granted(backend, winner);
      const loser = claimOn(winner.key);
      await acquireOn(backend, loser);
      expect(await releaseOn(backend, loser)).toEqual({ status: 'gone' });
      expect((await holderOn(backend, winner.key))?.owner).toBe(winner.owner);
      expect(await releaseOn(backend, winner)).toEqual({ status: 'released' });
      expect(await releaseOn(backend, winner)).toEqual({ status: 'gone' });
    });

    it('an extension of a held lock starts its ttl anew', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      claim.ttlMs = 60_000;
      const before = now();
      const extended = await extendOn(backend, claim);
      expect(extended).toEqual({ status: 'extended', sentAt: expect.any(Number) });
      expect((extended as { sentAt: number }).sentAt).toBeGreaterThanOrEqual(before);
      expect((await holderOn(backend, claim.key))!.remainingMs).toBeGreaterThan(30_000);
      await releaseOn(backend, claim);
    });

    it('an extension may shorten the time for which a lock stands', async () => {
      const claim = claimOn(freshKey(), 60_000);
      await granted(backend, claim);
      claim.ttlMs = 20_000;
      expect(await extendOn(backend, claim)).toMatchObject({ status: 'extended' });
      expect((await holderOn(backend, claim.key))!.remainingMs).toBeLessThanOrEqual(20_000);
      await releaseOn(backend, claim);
    });

    it('an extension of a lock that is gone fails, and does not bring it back', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      await backend.forceRelease(claim.key);
      expect(await extendOn(backend, claim)).toEqual({ status: 'lost', reason: 'expired' });
      const next = claimOn(claim.key);
      await takes(next);
      await releaseOn(backend, next);
    });

    it("an extension of another holder's lock fails [G4]", async () => {
      const expired = claimOn(freshKey());
      await granted(backend, expired);
      await backend.forceRelease(expired.key);
      const holder = claimOn(expired.key);
      await granted(backend, holder);
      expect(await extendOn(backend, expired)).toEqual({ status: 'lost', reason: 'stolen' });
      expect((await holderOn(backend, holder.key))?.owner).toBe(holder.owner);
      await releaseOn(backend, holder);
    });

    it('a lock keeps its fencing token when it is extended', async () => {
      const claim = claimOn(freshKey());
      const { fencingToken } = await granted(backend, claim);
      await extendOn(backend, claim);
      await extendOn(backend, claim);
      expect((await holderOn(backend, claim.key))?.fencingToken).toBe(fencingToken);
      await releaseOn(backend, claim);
    });

    it('a claim that is sent again counts as the same acquisition, and starts its ttl anew', async () => {
      const claim = claimOn(freshKey());
      const first = await granted(backend, claim);
      const again = await granted(backend, { ...claim, ttlMs: 60_000 });
      expect(again.fencingToken).toBeGreaterThanOrEqual(first.fencingToken);
      expect((await holderOn(backend, claim.key))!.remainingMs).toBeGreaterThan(30_000);
      expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    });

    it('an inspection shows who holds a lock, since when, for how long, and with which fencing token', async () => {
      const claim = claimOn(freshKey());
      expect(await holderOn(backend, claim.key)).toBeUndefined();
      const { fencingToken, sentAt } = await granted(backend, claim);
      const seen = await until(
        async () => {
          const holding = await holderOn(backend, claim.key);
          return (holding?.heldForMs ?? 0) >= 20 ? holding : undefined;
        },
        { what: 'it is held for 20 ms' },
      );
      const elapsedMs = now() - sentAt;
      expect(seen).toEqual({
        owner: claim.owner,
        fencingToken,
        remainingMs: expect.any(Number),
        heldForMs: expect.any(Number),
      });
      expect(seen.heldForMs!).toBeLessThanOrEqual(elapsedMs + 2);
      expect(seen.remainingMs).toBeGreaterThanOrEqual(claim.ttlMs - elapsedMs - 2);
      expect(seen.remainingMs).toBeLessThanOrEqual(claim.ttlMs - 18);
      await releaseOn(backend, claim);
    });

    it('a list has the locks that fit and are held or kept, as an inspection shows them, up to its limit', async () => {
      const hint = freshKey('listed');
      const [one, other, free] = [claimOn(`${hint}:1`), claimOn(`${hint}:2`), claimOn(`${hint}:3`)];
      for (const claim of [one, other, free]) await granted(backend, claim);
      await releaseOn(backend, other, 20_000);
      await releaseOn(backend, free);
      const request = { match: `${hint}:*`, limit: 2, budgetMs: 10_000 };
      const { locks, complete } = await backend.list(request);
      expect(complete).toBe(true);
      expect(locks.sort((a, b) => (a.key < b.key ? -1 : 1))).toMatchObject([
        { key: one.key, holding: { holders: [{ owner: one.owner, fencingToken: one.grant!.fencingToken }] } },
        { key: other.key, holding: { holders: [{ owner: other.owner, isKept: true }] } },
      ]);
      const part = await backend.list({ ...request, limit: 1 });
      expect([part.locks.length, part.complete]).toEqual([1, false]);
      for (const claim of [one, other]) await releaseOn(backend, claim);
    });

    it('a forced release frees a lock whoever holds it, and says who did', async () => {
      const claim = claimOn(freshKey());
      expect(await backend.forceRelease(claim.key)).toBeUndefined();
      await granted(backend, claim);
      expect(await backend.forceRelease(claim.key)).toEqual({ from: [claim.owner] });
      expect(await holderOn(backend, claim.key)).toBeUndefined();
      expect(await releaseOn(backend, claim)).toEqual({ status: 'gone' });
    });

    it('a forced release from an owner frees the lock if that one holds it, or its lock is kept', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      for (const other of [claim.owner.slice(0, -1), `${claim.owner}0`, '%']) {
        expect(await backend.forceRelease(claim.key, other)).toBeUndefined();
      }
      expect(await holderOn(backend, claim.key)).toMatchObject({ owner: claim.owner });
      expect(await backend.forceRelease(claim.key, claim.owner)).toEqual({ from: [claim.owner] });
      expect(await backend.forceRelease(claim.key, claim.owner)).toBeUndefined();
      await granted(backend, claim);
      expect(await releaseOn(backend, claim, 60_000)).toEqual({ status: 'released' });
      expect(await backend.forceRelease(claim.key, claim.owner)).toEqual({ from: [claim.owner] });
      expect(await holderOn(backend, claim.key)).toBeUndefined();
    });

    it('a lock that is kept is shown so, and granted to nobody', async () => {
      const kept = claimOn(freshKey());
      const { fencingToken } = await granted(backend, kept);
      expect(await releaseOn(backend, kept, 15_000)).toEqual({ status: 'released' });
      const remainingMs = expect.toSatisfy((ms: number) => ms > 5_000 && ms <= 15_000);
      const shown = { owner: kept.owner, isKept: true, remainingMs };
      expect(await holderOn(backend, kept.key)).toMatchObject({ ...shown, fencingToken });
      expect(await acquireOn(backend, claimOn(kept.key))).toMatchObject({ ...shown, status: 'contended' });
      await backend.forceRelease(kept.key);
    });

    it('a lock that is to be kept until a time that has passed is given back', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      expect(await releaseOn(backend, claim, -1)).toEqual({ status: 'released' });
      expect(await holderOn(backend, claim.key)).toBeUndefined();
    });

    it('a lock is kept for longer than its ttl', async () => {
      const kept = claimOn(freshKey(), 15_000);
      await granted(backend, kept);
      expect(await releaseOn(backend, kept, 60_000)).toEqual({ status: 'released' });
      expect((await holderOn(backend, kept.key))!.remainingMs).toBeGreaterThan(30_000);
      await backend.forceRelease(kept.key);
    });

    it('an attempt and an extension that come late leave a kept lock as it is, also those of its owner [G331]', async () => {
      const kept = claimOn(freshKey(), 60_000);
      await granted(backend, kept);
      await releaseOn(backend, kept, 15_000);
      expect(await extendOn(backend, kept)).toEqual({ status: 'lost', reason: 'stolen' });
      expect(await acquireOn(backend, { ...kept })).toMatchObject({ status: 'contended', owner: kept.owner });
      const holding = await holderOn(backend, kept.key);
      expect(holding).toMatchObject({ owner: kept.owner, isKept: true });
      expect(holding!.remainingMs).toBeLessThanOrEqual(15_000);
      await backend.forceRelease(kept.key);
    });

    it('a lock that is kept is taken by force, and then is free', async () => {
      const kept = claimOn(freshKey());
      await granted(backend, kept);
      await releaseOn(backend, kept, 60_000);
      expect(await backend.forceRelease(kept.key)).toEqual({ from: [kept.owner] });
      expect(await holderOn(backend, kept.key)).toBeUndefined();
      const next = claimOn(kept.key);
      await takes(next);
      await releaseOn(backend, next);
    });

    it('a lock of another holder is not kept, and neither is a free one', async () => {
      const key = freshKey();
      expect(await releaseOn(backend, claimOn(key), 60_000)).toEqual({ status: 'gone' });
      expect(await holderOn(backend, key)).toBeUndefined();
      const holder = claimOn(key);
      await granted(backend, holder);
      expect(await releaseOn(backend, claimOn(key), 60_000)).toEqual({ status: 'gone' });
      const holding = await holderOn(backend, key);
      expect(holding!.owner).toBe(holder.owner);
      expect(holding!.isKept).toBeUndefined();
      await releaseOn(backend, holder);
    });

    it('each of 300 simultaneous operations gets its own answer', async () => {
      const held = Array.from({ length: 300 }, () => claimOn(freshKey('many')));
      const tokens = await Promise.all(held.map((claim) => granted(backend, claim)));

      const operations = [
        (claim: Claim) => releaseOn(backend, claim),
        (claim: Claim) => releaseOn(backend, claim, 60_000),
        (claim: Claim) => extendOn(backend, claim),
        (claim: Claim) => holderOn(backend, claim.key),
        ({ key }: Claim) => releaseOn(backend, claimOn(key)),
        ({ key }: Claim) => extendOn(backend, claimOn(key)),
        ({ key }: Claim) => acquireOn(backend, claimOn(key)),
      ];
      const answers = await Promise.all(held.map((claim, index) => operations[index % 7]!(claim)));
      expect(answers).toEqual(
        held.map(
          ({ owner }, index) =>
            [
              { status: 'released' },
              { status: 'released' },
              { status: 'extended', sentAt: expect.any(Number) },
              expect.objectContaining({ owner, fencingToken: tokens[index]!.fencingToken }),
              { status: 'gone' },
              { status: 'lost', reason: 'stolen' },
              { status: 'contended', owner, remainingMs: expect.any(Number), queued: false },
            ][index % 7],
        ),
      );

      const after = await Promise.all(held.map(({ key }) => holderOn(backend, key)));
      expect(after.map((holding) => holding?.owner)).toEqual(
        held.map(({ owner }, index) => (index % 7 === 0 ? undefined : owner)),
      );
      await Promise.all(held.map(({ key }) => backend.forceRelease(key)));
    });

    it.each([
      'a:b',
      '100 %',
      'a b\tc\n',
      '{',
      'a{b',
      'a}b',
      '{a}b',
      '{}',
      'x{}y}',
      'schlüssel-鍵-🔑',
      '\0',
      'fence',
      ':',
    ])('the key %j is locked apart from others', async (suffix) => {
      const key = suffix + freshKey(''); // begins with the odd part
      const claims = [key, `${key}:fence`, `${key}}:fence`, `${key}}`, `${key}:`, `{${key}}`].map((k) => claimOn(k));
      for (const claim of claims) await granted(backend, claim);
      const owners = await Promise.all(claims.map(async (claim) => (await holderOn(backend, claim.key))?.owner));
      expect(owners).toEqual(claims.map(({ owner }) => owner));
      for (const claim of claims) expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    });

    it('a ping says that locks can be had, and names each node that does not vote', async () => {
      const { available, nodes, problems } = await backend.ping();
      expect(available).toBe(true);
      expect(nodes.voting).toBeGreaterThan(nodes.of / 2);
      expect(problems).toHaveLength(nodes.of - nodes.voting);
    });

    it('locks leave nothing in Redis but the fencing counters that all locks share', async () => {
      const key = freshKey('left');
      await releaseOn(backend, (await granted(backend, claimOn(key)), claimOn(key)));
      await backend.forceRelease(key);
      const claim = claimOn(key);
      await granted(backend, claim);
      await acquireOn(backend, claimOn(key));
      await extendOn(backend, claim);
      await holderOn(backend, key);
      await releaseOn(backend, claim);
      await releaseOn(backend, claimOn(freshKey('left')));
      await extendOn(backend, claimOn(freshKey('left')));
      await holderOn(backend, freshKey('left'));

      await subject.checkLeft?.();
    });

    // Side by side: they wait for leases to end.
    describe.concurrent('as time passes', () => {
      it('a lock is free when its ttl is over, and a late release leaves the new holder alone [G3]', async () => {
        const expired = claimOn(freshKey(), 200);
        const { sentAt } = await takes(expired);
        const next = claimOn(expired.key);
        await takes(next);
        expect(now() - sentAt).toBeGreaterThanOrEqual(199); // Redis counts whole milliseconds

        expect(await releaseOn(backend, expired)).toEqual({ status: 'gone' });
        expect((await holderOn(backend, next.key))?.owner).toBe(next.owner);
        await releaseOn(backend, next);
      });

      it('each grant has a larger fencing token: after a release, an expiry and a forced release [G13]', async () => {
        const key = freshKey();
        const tokens: number[] = [];
        const take = async (ttlMs?: number) => {
          const claim = claimOn(key, ttlMs);
          await until(
            async () => {
              const outcome = await acquireOn(backend, claim);
              if (outcome.status === 'acquired') tokens.push(outcome.grant.fencingToken!);
              return outcome.status === 'acquired';
            },
            { what: 'the lock is granted' },
          );
          return claim;
        };
        await releaseOn(backend, await take());
        await releaseOn(backend, await take());
        await take(100);
        await take(); // after the one before has expired
        await backend.forceRelease(key);
        await releaseOn(backend, await take());
        expect(tokens).toHaveLength(5);
        expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
        expect(tokens.every(Number.isSafeInteger)).toBe(true);
      });

      it.each(['release', 'extension'])('a late %s leaves the next holder alone, whenever it comes', async (what) => {
        await Promise.all(
          Array.from({ length: 20 }, async (_, index) => {
            const ending = claimOn(freshKey(), 400);
            const next = claimOn(ending.key);
            await takes(ending);
            await sleep(360 + 4 * index); // so that some come before the lease has ended, some after
            ending.ttlMs = 20;
            const late = what === 'release' ? releaseOn(backend, ending) : extendOn(backend, ending);
            await takes(next);
            await late;
            expect((await holderOn(backend, next.key))?.owner).toBe(next.owner);
            await releaseOn(backend, next);
          }),
        );
      });

      it('an extended lock is free when its new ttl is over, not before', async () => {
        const claim = claimOn(freshKey());
        await granted(backend, claim);
        const extendedAt = now();
        claim.ttlMs = 400;
        await extendOn(backend, claim);
        const next = claimOn(claim.key);
        await takes(next);
        expect(now() - extendedAt).toBeGreaterThanOrEqual(399); // Redis counts whole milliseconds
        await releaseOn(backend, next);
      });

      it('a lock that is kept ends by itself when that time is over, not before [G330]', async () => {
        const kept = claimOn(freshKey());
        const { fencingToken } = await granted(backend, kept);
        const keptAt = now();
        expect(await releaseOn(backend, kept, 200)).toEqual({ status: 'released' });
        const next = claimOn(kept.key);
        await takes(next);
        expect(now() - keptAt).toBeGreaterThanOrEqual(199); // Redis counts whole milliseconds
        expect(next.grant!.fencingToken).toBeGreaterThan(fencingToken);
        expect((await holderOn(backend, next.key))!.isKept).toBeUndefined();
        await releaseOn(backend, next);
      });
    });
  });
}
