import { ok } from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockOptionsError } from '../api/errors.js';
import {
  EXCLUSIVE,
  type AcquireOutcome,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
} from '../core/backend/lock-backend.js';
import { monotonic } from '../core/time/clock.js';
import { between, equal, matches, notBefore, shown } from './assertions.js';
import {
  acquireOn,
  claimOn,
  extendOn,
  freshKey,
  granted,
  holderOn,
  releaseOn,
  transferOn,
  type Claim,
} from './claims.js';
import { describeCrowds, refusesHold, unknownHolds } from './describe-crowds.js';
import { until } from './until.js';

/** A backend under test. Its clock is `performance.now()`. */
export interface BackendUnderTest {
  backend: LockBackend;
  /** The resolution of times in the store, in milliseconds: 1 000 for a store with whole seconds. @default 1 */
  resolutionMs?: number;
  /**
   * Checks what the store still contains of locks that were held and released.
   * @param prefix the beginning of their keys
   */
  checkLeft?: (prefix: string) => Promise<void>;
  /** Called after the backend has been closed. */
  tearDown?: () => unknown;
}

/** The functions of a test runner that `describeBackend` calls. */
export interface BackendTestRunner {
  describe(name: string, body: () => void): unknown;
  /** @param timeoutMs a generous time limit: a runner may ignore it */
  it(name: string, run: () => Promise<void>, timeoutMs?: number): unknown;
  beforeAll(run: () => Promise<void>): unknown;
  afterAll(run: () => Promise<void>): unknown;
}

/** Longer than any wait in a test, so that the error of the wait says what did not happen. */
const CASE_LIMIT_MS = 60_000;

/**
 * The contract of lock backends, as tests: call it in a test file of your backend. It tests shared locks and permits if the backend has
 * `modes`. It tests only the order of a wait queue, and no failures of the store.
 * @param setUp connects the backend before the first test
 * @param runner the functions of the test runner; default: the global functions, as Jest has them
 * @throws LockOptionsError if the functions are neither given nor global
 */
export function describeBackend(name: string, setUp: () => Promise<BackendUnderTest>, runner = globalRunner()): void {
  const tests = checked(runner);
  const it = (sentence: string, run: () => Promise<void>) => tests.it(sentence, run, CASE_LIMIT_MS);

  tests.describe(`The lock backend: ${name}`, () => {
    let subject: BackendUnderTest;
    let backend: LockBackend;

    tests.beforeAll(async () => {
      subject = await setUp();
      backend = subject.backend;
    });
    tests.afterAll(async () => {
      await subject?.backend.close(); // undefined if the set-up failed
      await subject?.tearDown?.();
    });

    /** Repeats the attempt, each time with a new owner, until the backend grants the lock. @returns the claim, with the start of the last attempt */
    const takes = (claim: Claim) =>
      until(
        async () => {
          const attempt = claimOn(claim.key, claim.ttlMs);
          const sentAt = monotonic();
          const { status } = answered(await acquireOn(backend, attempt), 'acquire');
          return status === 'acquired' ? Object.assign(claim, attempt, { sentAt }) : undefined;
        },
        { what: 'the lock is free' },
      );

    /** @param owner undefined if the lock must be free */
    const heldBy = async (owner: string | undefined, key: string) => {
      const holder = await holderOn(backend, key);
      equal(holder?.owner, owner, 'the owner that an inspection shows');
      return holder!;
    };

    const releases = async (claim: Claim, status = 'released', keptForMs?: number) =>
      equal(
        answered(await releaseOn(backend, claim, keptForMs), 'release').status,
        status,
        'the status of the release',
      );

    const extensionIs = async (claim: Claim, expected: object) =>
      matches(await extendOn(backend, claim), expected, 'the outcome of the extension');

    const takenFrom = async (key: string, expected: object | undefined, from?: string) =>
      equal(await backend.forceRelease(key, from), expected, 'the result of the forced release');

    it('a free lock is granted to one attempt, and the other learns who holds it and for how long', async () => {
      const winner = claimOn(freshKey());
      const before = monotonic();
      const won = await granted(backend, winner);
      between(won.sentAt, before, monotonic(), 'the sentAt of the grant');

      const lost = await acquireOn(backend, claimOn(winner.key));
      const refusal = { status: 'contended', owner: winner.owner, queued: false };
      matches(lost, refusal, 'the outcome of the other attempt');
      between((lost as { remainingMs?: number }).remainingMs, winner.ttlMs / 2, winner.ttlMs, 'its remainingMs');
      await releases(winner);
    });

    it('only one of many simultaneous attempts gets the lock', async () => {
      const key = freshKey();
      const claims = Array.from({ length: 20 }, () => claimOn(key));
      const statuses = (await Promise.all(claims.map((claim) => acquireOn(backend, claim)))).map(
        ({ status }) => status,
      );
      const counts = ['acquired', 'contended'].map((each) => statuses.filter((status) => status === each).length);
      equal(counts, [1, 19], 'how many of 20 simultaneous attempts are acquired and contended');
      const winner = claims[statuses.indexOf('acquired')]!;
      await heldBy(winner.owner, key);
      await releases(winner);
    });

    it('an attempt with a mode that the store does not support is refused with a message of its own', async () => {
      for (const hold of unknownHolds(backend)) await refusesHold(backend, hold);
    });

    it('a lock is free again after its release', async () => {
      const first = claimOn(freshKey());
      await granted(backend, first);
      await releases(first);
      await heldBy(undefined, first.key);
      const second = claimOn(first.key);
      await granted(backend, second);
      await releases(second);
    });

    it('a second release, and a release by an attempt that did not win, find nothing to release', async () => {
      const winner = claimOn(freshKey());
      await granted(backend, winner);
      const loser = claimOn(winner.key);
      await acquireOn(backend, loser);
      await releases(loser, 'gone');
      await heldBy(winner.owner, winner.key);
      await releases(winner);
      await releases(winner, 'gone');
    });

    it('an extension of a held lock restarts its ttl', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      claim.ttlMs = 60_000;
      const before = monotonic();
      const extended = await extendOn(backend, claim);
      equal(extended.status, 'extended', 'the status of the extension');
      between((extended as { sentAt: number }).sentAt, before, monotonic(), 'its sentAt');
      between((await heldBy(claim.owner, claim.key)).remainingMs, 30_000, 60_000, 'what is left of 60 s');
      await releases(claim);
    });

    it('an extension may shorten the remaining time of a lock', async () => {
      const claim = claimOn(freshKey(), 60_000);
      await granted(backend, claim);
      claim.ttlMs = 20_000;
      await extensionIs(claim, { status: 'extended' });
      between((await heldBy(claim.owner, claim.key)).remainingMs, 0, 20_000, 'what is left of 20 s');
      await releases(claim);
    });

    it('an extension of a lock that is gone fails, and does not bring it back', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      await backend.forceRelease(claim.key);
      await extensionIs(claim, { status: 'lost', reason: 'expired' });
      const next = claimOn(claim.key);
      await takes(next);
      await releases(next);
    });

    it("an extension of another holder's lock fails", async () => {
      const expired = claimOn(freshKey());
      await granted(backend, expired);
      await backend.forceRelease(expired.key);
      const holder = claimOn(expired.key);
      await granted(backend, holder);
      await extensionIs(expired, { status: 'lost', reason: 'stolen' });
      await heldBy(holder.owner, holder.key);
      await releases(holder);
    });

    it('a lock keeps its fencing token when it is extended', async () => {
      const claim = claimOn(freshKey());
      const { fencingToken } = await granted(backend, claim);
      await extendOn(backend, claim);
      await extendOn(backend, claim);
      const held = await heldBy(claim.owner, claim.key);
      equal(held.fencingToken, fencingToken, 'the fencing token after two extensions');
      await releases(claim);
    });

    it('a repeated attempt counts as the same acquisition, and restarts the ttl', async () => {
      const claim = claimOn(freshKey());
      const first = await granted(backend, claim);
      const again = await granted(backend, { ...claim, ttlMs: 60_000 });
      between(again.fencingToken, first.fencingToken, Infinity, 'the fencing token of the second answer');
      between((await heldBy(claim.owner, claim.key)).remainingMs, 30_000, 60_000, 'what is left of 60 s');
      await releases(claim);
    });

    it('an inspection shows who holds a lock, since when, for how long, and with which fencing token', async () => {
      const claim = claimOn(freshKey());
      await heldBy(undefined, claim.key);
      const { fencingToken, sentAt } = await granted(backend, claim);
      const seen = await until(
        async () => {
          const holder = await holderOn(backend, claim.key);
          return (holder?.heldForMs ?? 0) >= 20 ? holder : undefined;
        },
        { what: 'an inspection shows that the lock is held for 20 ms' },
      );
      const elapsedMs = monotonic() - sentAt;
      matches(seen, { owner: claim.owner, fencingToken }, 'the result of an inspection');
      equal(seen.isKept ?? false, false, 'whether the lock is kept');
      const { resolutionMs = 1 } = subject;
      between(seen.heldForMs, 20, elapsedMs + 1 + resolutionMs, 'its heldForMs');
      const [least, most] = [claim.ttlMs - elapsedMs - 1 - resolutionMs, claim.ttlMs - 19 + resolutionMs];
      between(seen.remainingMs, least, most, 'its remainingMs');
      await releases(claim);
    });

    it('a list contains the matching locks that are held or kept, as an inspection shows them, up to its limit', async () => {
      const hint = freshKey('listed');
      const [one, other, free] = [claimOn(`${hint}:1`), claimOn(`${hint}:2`), claimOn(`${hint}:3`)];
      for (const claim of [one, other, free]) await granted(backend, claim);
      await releases(other, 'released', 20_000);
      await releases(free);
      const request = { match: `${hint}:*`, limit: 2, budgetMs: 10_000 };
      const { locks, complete } = await backend.list(request);
      equal(complete, true, 'whether the list of both locks is complete');
      const shown = locks
        .sort((a, b) => (a.key < b.key ? -1 : 1))
        .map(({ key, holding: { holders } }) => [key, holders[0].owner, holders[0].isKept ?? false]);
      const wanted = [
        [one.key, one.owner, false],
        [other.key, other.owner, true],
      ];
      equal(shown, wanted, 'the keys, owners and isKept of the list');
      equal(locks[0]!.holding.holders[0].fencingToken, one.grant!.fencingToken, 'the fencing token in the list');
      const part = await backend.list({ ...request, limit: 1 });
      equal([part.locks.length, part.complete], [1, false], 'the length of a list of one, and whether it is complete');
      for (const claim of [one, other]) await releaseOn(backend, claim);
    });

    it('a forced release frees a lock no matter who holds it, and returns its holder', async () => {
      const claim = claimOn(freshKey());
      await takenFrom(claim.key, undefined);
      await granted(backend, claim);
      await takenFrom(claim.key, { from: [claim.owner] });
      await heldBy(undefined, claim.key);
      await releases(claim, 'gone');
    });

    it('a forced release from an owner frees the lock only if this owner holds it or has kept it', async () => {
      const claim = claimOn(freshKey());
      const { key, owner } = claim;
      await granted(backend, claim);
      for (const other of [owner.slice(0, -1), `${owner}0`, '%']) await takenFrom(key, undefined, other);
      await heldBy(owner, key);
      await takenFrom(key, { from: [owner] }, owner);
      await takenFrom(key, undefined, owner);
      await granted(backend, claim);
      await releases(claim, 'released', 60_000);
      await takenFrom(key, { from: [owner] }, owner);
      await heldBy(undefined, key);
    });

    it('an inspection shows that a lock is kept, and nobody else gets it', async () => {
      const kept = claimOn(freshKey());
      const { fencingToken } = await granted(backend, kept);
      await releases(kept, 'released', 15_000);
      const holder = await heldBy(kept.owner, kept.key);
      matches(holder, { isKept: true, fencingToken }, 'the result of an inspection');
      between(holder.remainingMs, 5_000, 15_000, 'its remainingMs');
      const refused = await acquireOn(backend, claimOn(kept.key));
      matches(refused, { status: 'contended', owner: kept.owner, isKept: true }, 'the outcome of another attempt');
      between((refused as { remainingMs?: number }).remainingMs, 5_000, 15_000, 'its remainingMs');
      await backend.forceRelease(kept.key);
    });

    it('a release that should keep the lock until a time in the past frees it', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      await releases(claim, 'released', -1);
      await heldBy(undefined, claim.key);
    });

    it('a release can keep a lock for longer than its ttl', async () => {
      const kept = claimOn(freshKey(), 15_000);
      await granted(backend, kept);
      await releases(kept, 'released', 60_000);
      between((await heldBy(kept.owner, kept.key)).remainingMs, 30_000, 60_000, 'what is left of 60 s');
      await backend.forceRelease(kept.key);
    });

    it('a late attempt and a late extension leave a kept lock as it is, even if its owner sends them', async () => {
      const kept = claimOn(freshKey(), 60_000);
      await granted(backend, kept);
      await releases(kept, 'released', 15_000);
      await extensionIs(kept, { status: 'lost', reason: 'stolen' });
      const late = await acquireOn(backend, { ...kept });
      matches(late, { status: 'contended', owner: kept.owner }, 'the outcome of the late attempt');
      const holder = await heldBy(kept.owner, kept.key);
      equal(holder.isKept, true, 'whether the lock is kept');
      between(holder.remainingMs, 0, 15_000, 'what is left of 15 s');
      await backend.forceRelease(kept.key);
    });

    it('a forced release frees a kept lock', async () => {
      const kept = claimOn(freshKey());
      await granted(backend, kept);
      await releases(kept, 'released', 60_000);
      await takenFrom(kept.key, { from: [kept.owner] });
      await heldBy(undefined, kept.key);
      const next = claimOn(kept.key);
      await takes(next);
      await releases(next);
    });

    it('a release that should keep the lock changes neither a free lock nor the lock of another holder', async () => {
      const key = freshKey();
      await releases(claimOn(key), 'gone', 60_000);
      await heldBy(undefined, key);
      const holder = claimOn(key);
      await granted(backend, holder);
      await releases(claimOn(key), 'gone', 60_000);
      equal((await heldBy(holder.owner, key)).isKept ?? false, false, 'whether the lock is kept');
      await releases(holder);
    });

    /** Tests the capability `transfer`; a backend without it must say why. */
    const itTransfers = (sentence: string, run: () => Promise<void>) =>
      it(sentence, async () => {
        if (backend.transfer) return run();
        ok(backend.whyNoTransfer, 'a backend without transfer should have whyNoTransfer, which says why');
      });

    const transferIs = async (from: Claim, to: Claim, mints: boolean, expected: object, atLeast?: boolean) => {
      const outcome = await transferOn(backend, from, to, { mints, atLeast });
      matches(outcome, expected, 'the outcome of the transfer');
      return outcome as { grant?: { owner: string; fencingToken?: number }; sentAt?: number };
    };

    itTransfers('a transferred lock has the new owner and ttl, and its old owner cannot change it', async () => {
      const old = claimOn(freshKey());
      const { fencingToken } = await granted(backend, old);
      const next = claimOn(old.key, 60_000);
      const before = monotonic();
      const { grant, sentAt } = await transferIs(old, next, false, { status: 'transferred' });
      between(sentAt, before, monotonic(), 'its sentAt');
      matches(grant, { owner: next.owner, fencingToken }, 'its grant');
      old.ttlMs = 100;
      await extensionIs(old, { status: 'lost', reason: 'stolen' });
      await releases(old, 'gone');
      await releases(old, 'gone', 20_000);
      matches(await acquireOn(backend, { ...old }), { status: 'contended', owner: next.owner }, 'a late attempt');
      const holder = await heldBy(next.owner, next.key);
      equal(holder.fencingToken, fencingToken, 'its fencing token');
      between(holder.remainingMs, 30_000, 60_000, 'what is left of 60 s');
      await extensionIs(next, { status: 'extended' });
      await releases(next);
    });

    itTransfers(
      'a transfer with a new token gives the lock a larger token, and the next grant has a still larger one',
      async () => {
        const old = claimOn(freshKey());
        const { lastToken } = await granted(backend, old);
        const next = claimOn(old.key);
        const { grant } = await transferIs(old, next, true, { status: 'transferred' });
        between(grant?.fencingToken, lastToken + 1, Number.MAX_SAFE_INTEGER, 'its fencing token');
        equal(
          (await heldBy(next.owner, next.key)).fencingToken,
          grant?.fencingToken,
          'the fencing token that an inspection shows',
        );
        await releases(next);
        const later = await granted(backend, claimOn(old.key));
        between(later.fencingToken, grant!.fencingToken! + 1, Number.MAX_SAFE_INTEGER, 'the token of the next grant');
        await backend.forceRelease(old.key);
      },
    );

    itTransfers('a repeated transfer restarts the ttl and changes nothing else', async () => {
      const old = claimOn(freshKey());
      await granted(backend, old);
      const next = claimOn(old.key, 20_000);
      const { grant } = await transferIs(old, next, true, { status: 'transferred' });
      next.ttlMs = 60_000;
      const again = await transferIs(old, next, true, { status: 'transferred' });
      equal(again.grant?.fencingToken, grant?.fencingToken, 'the fencing token of the second answer');
      between((await heldBy(next.owner, next.key)).remainingMs, 30_000, 60_000, 'what is left of 60 s');
      await releases(next);
    });

    itTransfers(
      'a transfer for at least its ttl never shortens the remaining time, even if it is repeated',
      async () => {
        const [old, next] = [claimOn(freshKey(), 60_000), claimOn(freshKey())];
        await granted(backend, old);
        next.key = old.key;
        for (const [from, to, mints] of [
          [old, next, true],
          [old, next, true],
          [next, old, false],
          [next, old, false],
        ] as const) {
          to.ttlMs = 1;
          await transferIs(from, to, mints, { status: 'transferred' }, true);
          between((await heldBy(to.owner, to.key)).remainingMs, 30_000, 60_000, 'what is left of 60 s');
        }
        next.ttlMs = 200_000;
        await transferIs(old, next, true, { status: 'transferred' }, true);
        between((await heldBy(next.owner, next.key)).remainingMs, 100_000, 200_000, 'what is left of 200 s');
        await releases(next);
      },
    );

    itTransfers('only one of many simultaneous transfers from the same owner succeeds', async () => {
      const old = claimOn(freshKey());
      await granted(backend, old);
      const claims = Array.from({ length: 20 }, () => claimOn(old.key));
      const outcomes = await Promise.all(claims.map((claim) => transferOn(backend, old, claim, { mints: true })));
      const winners = claims.filter((_, at) => outcomes[at]!.status === 'transferred');
      equal(winners.length, 1, 'how many of 20 simultaneous transfers succeed');
      for (const outcome of outcomes.filter(({ status }) => status !== 'transferred'))
        equal(outcome, { status: 'lost', reason: 'stolen' }, 'the outcome of the others');
      await heldBy(winners[0]!.owner, old.key);
      await releases(winners[0]!);
    });

    it('commands that arrive again later leave the next holder alone, and a lock that such a late attempt acquires expires by itself', async () => {
      const first = claimOn(freshKey(), 200);
      await granted(backend, first);
      await releases(first);
      const next = claimOn(first.key);
      await granted(backend, next);
      const late = await acquireOn(backend, { ...first });
      matches(late, { status: 'contended', owner: next.owner }, 'the outcome of the late attempt');
      await extensionIs(first, { status: 'lost', reason: 'stolen' });
      await releases(first, 'gone');
      await takenFrom(first.key, undefined, first.owner);
      equal(
        (await heldBy(next.owner, next.key)).fencingToken,
        next.grant!.fencingToken,
        'the token of the next holder',
      );
      await releases(next);
      const { status } = await acquireOn(backend, { ...first });
      ok(status !== 'unavailable', 'the backend should answer a late attempt at a free lock');
      const last = claimOn(first.key);
      await takes(last);
      between(last.grant!.fencingToken, next.grant!.fencingToken! + 1, Infinity, 'the token of the last holder');
      await releases(last);
    });

    itTransfers('a transfer fails if the lock is free, kept, or held by another owner', async () => {
      const [old, next] = [claimOn(freshKey()), claimOn(freshKey())];
      await transferIs(old, next, true, { status: 'lost', reason: 'expired' });
      await heldBy(undefined, old.key);
      const holder = claimOn(old.key);
      await granted(backend, holder);
      await transferIs(old, next, true, { status: 'lost', reason: 'stolen' });
      for (const owner of [holder.owner.slice(0, -1), `${holder.owner}0`])
        await transferIs({ ...old, owner }, next, true, { status: 'lost', reason: 'stolen' });
      await heldBy(holder.owner, holder.key);
      await releases(holder, 'released', 20_000);
      await transferIs(holder, next, true, { status: 'lost', reason: 'stolen' });
      equal((await heldBy(holder.owner, holder.key)).isKept, true, 'whether the lock is kept');
      await backend.forceRelease(holder.key);
    });

    describeCrowds(it, () => backend);

    // After the tests above, which listen for turns: a queue has only one listener.
    it('an inspection shows which processes wait in the queue, and how many waiting calls each of them last reported', async () => {
      const key = freshKey();
      const [holder, waiting] = [claimOn(key), claimOn(key)];
      await granted(backend, holder);
      const { waitQueue } = backend;
      const places = async () => (await backend.inspect(key))?.waiting ?? [];
      if (waitQueue && waitQueue.keepsPlaces !== false) {
        waitQueue.listen(key, { onTurn() {}, onMayBeFree() {}, onTaken() {}, onWarning() {} });
        await until(() => waitQueue.isListening(key), { what: 'the wait queue listens' });
        const place: Place = {
          ticket: waiting.owner,
          hold: EXCLUSIVE,
          turns: 1,
          calls: 0,
          arrivedAt: monotonic(),
          isTaken: false,
        };
        for (const calls of [3, 1, 400]) {
          const asked = { ...place, calls, isTaken: calls !== 3 };
          matches(await acquireOn(backend, waiting, asked), { queued: true }, 'the outcome with a place');
          equal(
            await places(),
            [{ ticket: place.ticket, calls }],
            `the places that an inspection shows, with ${calls} calls`,
          );
        }
        waitQueue.leave(key, place);
        await until(async () => (await places()).length === 0, {
          what: 'an inspection no longer shows a place that was given up',
        });
      }
      equal(await places(), [], 'the places of an empty queue');
      await releases(holder);
    });

    it('a store with a watch reports after each release, forced or not, that the lock may be free', async () => {
      const { waitQueue } = backend;
      if (waitQueue?.keepsPlaces !== false) return; // no queue, or a queue that keeps places
      const key = freshKey();
      let woken = 0;
      const onMayBeFree = (heard: string) => void (woken += Number(heard === key));
      waitQueue.listen(key, { onTurn() {}, onMayBeFree, onTaken() {}, onWarning() {} });
      await until(() => waitQueue.isListening(key), { what: 'the watch yields undefined' });
      for (const end of ['release', 'forced release']) {
        const holder = claimOn(key);
        await takes(holder);
        const before = woken;
        if (end === 'release') await releases(holder);
        else await backend.forceRelease(key);
        await until(() => woken > before, { what: `the watch yields the key after the ${end}` });
      }
    });

    it('an inspection shows how many calls wait behind an exclusive lock, as its holder last reported, or shows no number', async () => {
      const [holder, next] = [claimOn(freshKey()), claimOn(freshKey())];
      next.key = holder.key;
      const shown = async () => (await holderOn(backend, holder.key))?.calls;
      const shownAfter = async (calls: number) => {
        equal(
          (await extendOn(backend, holder, { calls, forMs: 20_000 })).status,
          'extended',
          'the status of an extension that reports calls',
        );
        return shown();
      };
      await granted(backend, holder);
      equal(await shown(), undefined, 'the calls before a report');
      const isShown = (await shownAfter(3)) !== undefined; // a store without this feature shows nothing
      for (const calls of [3, 1, 400])
        equal(await shownAfter(calls), isShown ? calls : undefined, `the calls after a report of ${calls}`);
      await releases(holder);
      await granted(backend, next);
      equal(await shown(), undefined, 'the calls behind the next holder');
      await releases(next);
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
      for (const [index, { owner }] of held.entries()) {
        const { fencingToken } = tokens[index]!;
        const expected = [
          { status: 'released' },
          { status: 'released' },
          { status: 'extended' },
          { owner, fencingToken },
          { status: 'gone' },
          { status: 'lost', reason: 'stolen' },
          { status: 'contended', owner, queued: false },
        ][index % 7]!;
        matches(answers[index], expected, `the answer to operation ${index}`);
      }
      const after = await Promise.all(held.map(({ key }) => holderOn(backend, key)));
      const owners = held.map(({ owner }, index) => (index % 7 === 0 ? undefined : owner));
      const seen = after.map((holder) => holder?.owner);
      equal(seen, owners, 'the owners after all operations');
      await Promise.all(held.map(({ key }) => backend.forceRelease(key)));
    });

    for (const suffix of ODD_KEYS) {
      it(`the key ${JSON.stringify(suffix)} has a lock of its own`, async () => {
        const key = suffix + freshKey(''); // the odd part comes first
        const keys = [key, `${key}:fence`, `${key}}:fence`, `${key}}`, `${key}:`, `{${key}}`];
        const claims = keys.map((each) => claimOn(each));
        for (const claim of claims) await granted(backend, claim);
        for (const claim of claims) await heldBy(claim.owner, claim.key);
        for (const claim of claims) await releases(claim);
      });
    }

    it('a ping reports that locks are available, and names each node that does not vote', async () => {
      const { available, nodes, problems } = await backend.ping();
      equal(available, true, 'whether locks are available');
      ok(nodes.voting > nodes.of / 2, `a majority should vote, but only ${nodes.voting} of ${nodes.of} nodes do`);
      equal(problems.length, nodes.of - nodes.voting, 'the number of problems');
    });

    it('released locks leave nothing in the store except what all locks share', async () => {
      const prefix = freshKey('left');
      const key = freshKey(prefix);
      await releaseOn(backend, (await granted(backend, claimOn(key)), claimOn(key)));
      await backend.forceRelease(key);
      const claim = claimOn(key);
      await granted(backend, claim);
      await acquireOn(backend, claimOn(key));
      await extendOn(backend, claim);
      await holderOn(backend, key);
      await releaseOn(backend, claim);
      await releaseOn(backend, claimOn(freshKey(prefix)));
      await extendOn(backend, claimOn(freshKey(prefix)));
      await holderOn(backend, freshKey(prefix));
      await subject.checkLeft?.(prefix);
    });

    it('a lock is free once its ttl has passed, and a late release leaves the new holder alone', async () => {
      const expired = claimOn(freshKey(), 200);
      const { sentAt } = await takes(expired);
      const next = claimOn(expired.key);
      await takes(next);
      notBefore(200, sentAt);
      await releases(expired, 'gone');
      await heldBy(next.owner, next.key);
      await releases(next);
    });

    it('each grant has a larger fencing token: after a release, an expiry and a forced release', async () => {
      const key = freshKey();
      const tokens: number[] = [];
      const take = async (ttlMs?: number) => {
        const claim = claimOn(key, ttlMs);
        await takes(claim);
        tokens.push(claim.grant!.fencingToken!);
        return claim;
      };
      await releases(await take());
      await releases(await take());
      await take(100);
      await take(); // once the lock before has expired
      await backend.forceRelease(key);
      await releases(await take());
      const ascending = [...new Set(tokens)].sort((a, b) => a - b);
      equal(tokens, ascending, 'the fencing tokens of 5 grants in turn');
      ok(tokens.every(Number.isSafeInteger), `fencing tokens should be safe integers: ${shown(tokens)}`);
    });

    for (const what of ['release', 'extension']) {
      it(`a late ${what} leaves the next holder alone, whenever it arrives`, async () => {
        await Promise.all(
          Array.from({ length: 20 }, async (_, index) => {
            const ending = claimOn(freshKey(), 400);
            const next = claimOn(ending.key);
            await takes(ending);
            await sleep(360 + 4 * index); // so that some commands arrive before the end of the lease, and some after it
            ending.ttlMs = 20;
            const late = what === 'release' ? releaseOn(backend, ending) : extendOn(backend, ending);
            await takes(next);
            await late;
            await heldBy(next.owner, next.key);
            await releases(next);
          }),
        );
      });
    }

    it('an extended lock is free once its new ttl has passed, and not before', async () => {
      const claim = claimOn(freshKey());
      await granted(backend, claim);
      const extendedAt = monotonic();
      claim.ttlMs = 400;
      await extendOn(backend, claim);
      const next = claimOn(claim.key);
      await takes(next);
      notBefore(400, extendedAt);
      await releases(next);
    });

    itTransfers('a transferred lock is free once its new ttl has passed, and not before', async () => {
      const old = claimOn(freshKey());
      await granted(backend, old);
      const expired = claimOn(old.key, 300);
      const transferredAt = monotonic();
      await transferIs(old, expired, false, { status: 'transferred' });
      const next = claimOn(old.key);
      await takes(next);
      notBefore(300, transferredAt);
      await transferIs(expired, claimOn(old.key), true, { status: 'lost', reason: 'stolen' });
      await heldBy(next.owner, next.key);
      await releases(next);
    });

    it('a kept lock becomes free once the requested time has passed, and not before', async () => {
      const kept = claimOn(freshKey());
      const { fencingToken } = await granted(backend, kept);
      const keptAt = monotonic();
      await releases(kept, 'released', 200);
      const next = claimOn(kept.key);
      await takes(next);
      notBefore(200, keptAt);
      between(next.grant!.fencingToken, fencingToken + 1, Infinity, 'the fencing token of the next holder');
      equal((await heldBy(next.owner, next.key)).isKept ?? false, false, 'whether the lock of the next holder is kept');
      await releases(next);
    });
  });
}

/** Keys that a store could confuse with each other, or with other data that it keeps. */
const ODD_KEYS = [
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
];

function globalRunner(): BackendTestRunner {
  return globalThis as unknown as BackendTestRunner;
}

/** @throws LockOptionsError */
function checked(runner: Partial<BackendTestRunner>): BackendTestRunner {
  const names = ['describe', 'it', 'beforeAll', 'afterAll'] as const;
  const missing = names.filter((name) => typeof runner[name] !== 'function');
  if (missing.length === 0) return runner as BackendTestRunner;
  throw new LockOptionsError(
    `describeBackend needs functions of a test runner, but does not find ${missing.join(', ')}. If they are not global, pass them: ` +
      'describeBackend(name, setUp, { describe, it, beforeAll, afterAll }); with node:test, { describe, it, beforeAll: before, afterAll: after }.',
  );
}

/** Returns the outcome if the store has answered. @throws Error with the causes if it has not */
function answered<Outcome extends AcquireOutcome | ReleaseOutcome>(outcome: Outcome, operation: string): Outcome {
  if (outcome.status !== 'unavailable') return outcome;
  const causes = outcome.causes.map(({ message }) => message).join('; ');
  throw new Error(`${operation} failed because the backend is unavailable: ${causes || 'no cause given'}`);
}
