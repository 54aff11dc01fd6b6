import { ok } from 'node:assert/strict';
import type { LockMode } from '../api/lock.js';
import type { AcquireOutcome, Hold, Holder, LockBackend, Place, WaitListener } from '../core/backend/lock-backend.js';
import { monotonic } from '../core/time/clock.js';
import { between, equal, matches, notBefore, shown as inText } from './assertions.js';
import { acquireOn, claimOn, extendOn, freshKey, granted, releaseOn, transferOn, type Claim } from './claims.js';
import { until } from './until.js';

type Granted = Extract<AcquireOutcome, { status: 'acquired' }>;
type Contended = Extract<AcquireOutcome, { status: 'contended' }>;

const HOLDS: Record<LockMode, Hold> = {
  exclusive: { mode: 'exclusive' },
  shared: { mode: 'shared' },
  permits: { mode: 'permits', permits: 1, limit: 4 },
};

const sharedOn = (key: string, ttlMs?: number) => claimOn(key, ttlMs, HOLDS.shared);
const permitsOn = (key: string, permits: number, limit: number, ttlMs?: number) =>
  claimOn(key, ttlMs, { mode: 'permits', permits, limit });

/** Checks that the store refuses to hold a lock in this way, says why, and does not hold it. */
export async function refusesHold(backend: LockBackend, hold: Hold): Promise<void> {
  const claim = claimOn(freshKey(), 20_000, hold);
  const outcome = await acquireOn(backend, claim);
  equal(outcome.status, 'unavailable', `the status of an attempt whose hold.mode is ${inText(hold.mode)}`);
  const problems = (outcome as { causes: { problem: string }[] }).causes.map(({ problem }) => problem);
  equal(problems.length, 1, 'the number of its causes');
  ok(problems[0]!.includes('exclusive'), `its cause should name the mode "exclusive", but is: ${problems[0]}`);
  equal(await backend.inspect(claim.key), undefined, 'the result of an inspection after that');
}

/** The ways to hold a lock that the backend does not support. */
export function unknownHolds({ modes = [] }: LockBackend): Hold[] {
  const lacking = Object.values(HOLDS).filter(({ mode }) => mode !== 'exclusive' && !modes.includes(mode));
  return [{ mode: 'sideways' } as unknown as Hold, ...lacking];
}

/**
 * The part of the contract about locks with several holders: shared locks and permits. A backend that does not support them must refuse
 * them, and a backend without a wait queue gives no attempt a place in it.
 * @param backendOf called in each test; returns the backend
 */
export function describeCrowds(
  it: (sentence: string, run: () => Promise<void>) => unknown,
  backendOf: () => LockBackend,
): void {
  let backend: LockBackend;

  const itHolds = (modes: readonly LockMode[], sentence: string, run: () => Promise<void>) =>
    it(sentence, async () => {
      backend = backendOf();
      const lacking = modes.find((mode) => mode !== 'exclusive' && !backend.modes?.includes(mode));
      await (lacking ? refusesHold(backend, HOLDS[lacking]) : run());
    });

  const itServes = (modes: readonly LockMode[], sentence: string, run: (key: string) => Promise<void>) =>
    itHolds(modes, sentence, async () => {
      const key = freshKey();
      if (backend.waitQueue && backend.waitQueue.keepsPlaces !== false) {
        backend.waitQueue.listen(key, listener);
        await until(() => backend.waitQueue!.isListening(key), { what: 'the wait queue listens' });
        // The store may need an answer before it can tell when a place counts as taken.
        const first = claimOn(key);
        await acquireOn(backend, first, placeOf(first));
        await releases(first);
        return run(key);
      }
      const holder = claimOn(key);
      await granted(backend, holder);
      const waiting = claimOn(key);
      matches(await acquireOn(backend, waiting, placeOf(waiting)), { queued: false }, 'the outcome without a queue');
      await releases(holder);
    });

  const refused = async (claim: Claim, expected: Partial<Contended> = {}, place?: Place): Promise<Contended> => {
    const outcome = await acquireOn(backend, claim, place);
    matches(outcome, { status: 'contended', ...expected }, 'the outcome of an attempt that does not fit');
    return outcome as Contended;
  };

  const acquired = async (claim: Claim): Promise<Granted> => {
    const outcome = await acquireOn(backend, claim);
    equal(outcome.status, 'acquired', 'the status of an attempt that fits');
    return outcome as Granted;
  };

  const holdersOf = async (key: string): Promise<readonly Holder[]> => (await backend.inspect(key))?.holders ?? [];

  const ownersOf = async (key: string) => (await holdersOf(key)).map(({ owner }) => owner);

  const heldBy = async (key: string, claims: readonly Claim[]) => {
    const owners = claims.map(({ owner }) => owner);
    equal(await ownersOf(key), owners, 'the owners that an inspection shows');
  };

  /** Returns the remaining time of this holder. */
  const leftOf = async ({ key, owner }: Claim) =>
    (await holdersOf(key)).find((holder) => holder.owner === owner)?.remainingMs;

  const untilHeldBy = (key: string, { owner }: Claim) =>
    until(async () => (await ownersOf(key)).join() === owner, { what: 'only one holder is left' });

  const releases = async (claim: Claim, status = 'released') =>
    equal((await releaseOn(backend, claim)).status, status, 'the status of the release');

  const extensionIs = async (claim: Claim, expected: object) =>
    matches(await extendOn(backend, claim), expected, 'the outcome of the extension');

  /** The tickets whose turn has come: the backend calls `listener`. */
  const turns = new Set<string>();
  const listener: WaitListener = {
    onTurn: (ticket) => void (ticket !== undefined && turns.add(ticket)),
    onMayBeFree: () => {},
    onTaken: () => {},
    onWarning: () => {},
  };

  /** Takes a place in the queue for the attempt. @param agoMs how long ago the attempt came */
  const waits = async (claim: Claim, agoMs: number): Promise<Place> => {
    const place = placeOf(claim, agoMs);
    await refused(claim, { queued: true }, place);
    return { ...place, isTaken: true };
  };

  const staysOut = (claim: Claim, place: Place) => refused(claim, { queued: true }, place);

  /** Repeats the attempt until the backend grants the lock. */
  const asksUntilGranted = (claim: Claim, place: Place) =>
    until(
      async () => {
        const outcome = await acquireOn(backend, claim, place);
        return outcome.status === 'acquired' ? outcome : undefined;
      },
      { what: 'the lock is granted to a waiting attempt' },
    );

  /** Waits until the queue reports the turn of the attempt, and then acquires the lock. */
  const comesIn = async (claim: Claim, place: Place): Promise<Granted> => {
    await until(() => turns.has(place.ticket), { what: 'the turn of a waiting attempt comes' });
    return asksUntilGranted(claim, place);
  };

  itHolds(['shared'], 'all attempts to share a lock get it, with the same fencing token', async () => {
    const key = freshKey();
    const claims = Array.from({ length: 20 }, () => sharedOn(key));
    const tokens = await Promise.all(claims.map(async (claim) => (await acquired(claim)).grant.fencingToken));
    equal(new Set(tokens).size, 1, 'the number of fencing tokens of 20 holders that share a lock');
    ok(Number.isSafeInteger(tokens[0]), `their fencing token should be a safe integer, but is ${tokens[0]}`);
    const holders = await holdersOf(key);
    const shown = new Set(holders.map(({ fencingToken }) => fencingToken));
    equal(
      [holders.length, ...shown],
      [20, tokens[0]],
      'the number of holders that an inspection shows, and their tokens',
    );
    for (const claim of claims) await releases(claim);
    await heldBy(key, []);
  });

  itHolds(['shared'], 'holders that share a lock have one token, which is larger than all earlier tokens', async () => {
    const key = freshKey();
    const [first, next, last] = [sharedOn(key), sharedOn(key), sharedOn(key)];
    const { fencingToken } = await granted(backend, first);
    await granted(backend, next);
    await releases(first);
    equal((await granted(backend, last)).fencingToken, fencingToken, 'the token of a later holder');
    for (const claim of [next, last]) await releases(claim);
    const tokens = [fencingToken];
    for (const claim of [claimOn(key), sharedOn(key), sharedOn(key), claimOn(key)]) {
      tokens.push((await granted(backend, claim)).fencingToken);
      await releases(claim);
    }
    const ascending = [...new Set(tokens)].sort((a, b) => a - b);
    equal(tokens, ascending, 'the fencing tokens of two shared locks between two exclusive locks');
  });

  itHolds(['shared', 'permits'], 'an exclusive lock, a shared lock and permits exclude each other', async () => {
    const key = freshKey();
    const modes = Object.values(HOLDS);
    for (const hold of modes) {
      for (const other of modes.filter((each) => each !== hold || each.mode === 'exclusive')) {
        const holder = claimOn(key, 20_000, hold);
        await granted(backend, holder);
        const what = `the outcome of an attempt (${other.mode}) while there is a holder (${hold.mode})`;
        const outcome = await acquireOn(backend, claimOn(key, 20_000, other));
        matches(outcome, { status: 'contended', owner: holder.owner, queued: false }, what);
        equal((outcome as Contended).smallerLimit, undefined, 'its smallerLimit');
        await heldBy(key, [holder]);
        await releases(holder);
      }
    }
  });

  for (const [what, join] of [
    ['a shared lock', sharedOn],
    ['a lock with permits', (key: string, ttlMs?: number) => permitsOn(key, 1, 3, ttlMs)],
  ] as const) {
    const { mode } = join('').hold;
    /** Makes two holders of one lock. */
    const crowd = async (...ttlsMs: [number?, number?]): Promise<[Claim, Claim]> => {
      const key = freshKey();
      const claims: [Claim, Claim] = [join(key, ttlsMs[0]), join(key, ttlsMs[1])];
      for (const claim of claims) await granted(backend, claim);
      return claims;
    };

    itHolds([mode], `an exclusive attempt at ${what} learns when its last holder expires`, async () => {
      const [one, other] = await crowd(60_000, 20_000);
      const { owner, remainingMs } = await refused(claimOn(one.key));
      ok([one.owner, other.owner].includes(owner!), `the owner should be one of the holders, but is ${owner}`);
      between(remainingMs, 30_000, 60_000, 'its remainingMs');
      for (const claim of [one, other]) await releases(claim);
    });

    itHolds(
      [mode],
      `an inspection and a list show ${what} with all its holders, in the order in which they came`,
      async () => {
        const [one, other] = await crowd(60_000, 20_000);
        const { key } = one;
        const { locks } = await backend.list({ match: key, limit: 10, budgetMs: 10_000 });
        for (const holding of [(await backend.inspect(key))!, locks[0]?.holding]) {
          equal(holding?.mode, mode, 'the mode that is shown');
          const shown = holding!.holders.map(({ owner, permits, limit }) => [owner, permits, limit]);
          const parts = mode === 'permits' ? [1, 3] : [undefined, undefined];
          const wanted = [one, other].map(({ owner }) => [owner, ...parts]);
          equal(shown, wanted, 'the owners, permits and limits that are shown');
          const [first, second] = holding!.holders;
          between(first.remainingMs, 30_000, 60_000, 'the remainingMs of the first');
          between(second!.remainingMs, 0, 20_000, 'the remainingMs of the second');
          equal([first.isKept ?? false, second!.isKept ?? false], [false, false], 'whether they are kept');
        }
        for (const claim of [one, other]) await releases(claim);
      },
    );

    itHolds([mode], `a holder that releases ${what} leaves it to the others`, async () => {
      const [one, other] = await crowd();
      const { key } = one;
      await releases(one);
      await heldBy(key, [other]);
      await releases(one, 'gone');
      await extensionIs(one, { status: 'lost', reason: 'stolen' });
      await refused(claimOn(key), { owner: other.owner });
      await releases(other);
      await heldBy(key, []);
      await extensionIs(other, { status: 'lost', reason: 'expired' });
      const next = claimOn(key);
      await granted(backend, next);
      await releases(next);
    });

    itHolds([mode], `a holder of ${what} loses it when its ttl has passed, and the others still hold it`, async () => {
      const [short, long] = await crowd(200);
      const { key } = short;
      await untilHeldBy(key, long);
      await extensionIs(short, { status: 'lost', reason: 'expired' });
      await releases(short, 'gone');
      await refused(claimOn(key), { owner: long.owner });
      await heldBy(key, [long]);
      await releases(long);
      const next = claimOn(key);
      await granted(backend, next);
      await releases(next);
    });

    itHolds([mode], `an extension of ${what} changes only the end of its own holder`, async () => {
      const [one, other] = await crowd(20_000, 60_000);
      one.ttlMs = 40_000;
      await extensionIs(one, { status: 'extended' });
      between(await leftOf(one), 20_000, 40_000, 'what is left of 40 s');
      between(await leftOf(other), 40_000, 60_000, 'what is left of 60 s for the other');
      other.ttlMs = 100_000;
      await extensionIs(other, { status: 'extended' });
      between(await leftOf(other), 60_000, 100_000, 'what is left of 100 s');
      between(await leftOf(one), 0, 40_000, 'what is left of 40 s for the other');
      one.ttlMs = 100;
      await extensionIs(one, { status: 'extended' });
      await untilHeldBy(one.key, other);
      between(await leftOf(other), 40_000, 100_000, 'what is left of 100 s after the other holder has expired');
      await releases(other);
    });

    itHolds([mode], `a repeated attempt at ${what} counts as the same holder, with a new ttl`, async () => {
      const [one, other] = await crowd();
      const { fencingToken } = one.grant!;
      const again = { ...one, ttlMs: 60_000 };
      equal((await acquired(again)).grant.fencingToken, fencingToken, 'the fencing token of the second answer');
      await heldBy(one.key, [one, other]);
      between(await leftOf(one), 30_000, 60_000, 'what is left of 60 s');
      between(await leftOf(other), 0, 20_000, 'what is left of 20 s for the other');
      const third = join(one.key);
      await granted(backend, third); // the limit is three permits
      for (const claim of [one, other, third]) await releases(claim);
    });

    itHolds([mode], `a forced release takes ${what} from one holder, or from all`, async () => {
      const [one, other] = await crowd();
      const { key } = one;
      equal(
        await backend.forceRelease(key, `${one.owner}0`),
        undefined,
        'the result of a forced release from an unknown owner',
      );
      equal(
        await backend.forceRelease(key, one.owner),
        { from: [one.owner] },
        'the result of a forced release from one holder',
      );
      await heldBy(key, [other]);
      await releases(one, 'gone');
      await extensionIs(one, { status: 'lost', reason: 'stolen' });
      const third = join(key);
      await granted(backend, third);
      const taken = await backend.forceRelease(key);
      equal(
        [...(taken?.from ?? [])].sort(),
        [other.owner, third.owner].sort(),
        'the owners that a forced release took the lock from',
      );
      await heldBy(key, []);
      await extensionIs(other, { status: 'lost', reason: 'expired' });
      equal(await backend.forceRelease(key), undefined, 'the result of a forced release of a free lock');
    });

    itHolds([mode], `${what} is neither kept nor transferred`, async () => {
      const [one, other] = await crowd();
      equal(
        (await releaseOn(backend, one, 60_000)).status,
        'gone',
        'the status of a release that should keep the lock',
      );
      if (backend.transfer) {
        const outcome = await transferOn(backend, one, claimOn(one.key), { mints: true });
        matches(outcome, { status: 'lost', reason: 'stolen' }, 'the outcome of the transfer');
      }
      await heldBy(one.key, [one, other]);
      between(await leftOf(one), 0, 20_000, 'what is left of 20 s');
      for (const claim of [one, other]) await releases(claim);
    });
  }

  itHolds(['permits'], 'simultaneous attempts never get more permits than the limit', async () => {
    const key = freshKey();
    const claims = Array.from({ length: 20 }, () => permitsOn(key, 1, 3));
    const outcomes = await Promise.all(claims.map((claim) => acquireOn(backend, claim)));
    const winners = claims.filter((_, at) => outcomes[at]!.status === 'acquired');
    const refusals = outcomes.filter(({ status }) => status === 'contended').length;
    equal([winners.length, refusals], [3, 17], 'how many of 20 attempts at 3 permits are acquired and contended');
    equal((await holdersOf(key)).length, 3, 'the number of holders');
    equal(winners[0]!.grant!.fencingToken, undefined, 'the fencing token of a permit');
    equal((await holdersOf(key))[0]!.fencingToken, undefined, 'the fencing token that an inspection shows');
    for (const claim of winners) await releases(claim);
    await heldBy(key, []);
  });

  itHolds(['permits'], 'an attempt at several permits gets all of them or none', async () => {
    const key = freshKey();
    const [three, two] = [permitsOn(key, 3, 5, 60_000), permitsOn(key, 2, 5)];
    await granted(backend, three);
    await refused(permitsOn(key, 3, 5), { owner: three.owner });
    await granted(backend, two);
    const { remainingMs } = await refused(permitsOn(key, 1, 5));
    between(remainingMs, 0, 20_000, 'the remainingMs, until the first of the holders ends');
    await releases(three);
    const next = permitsOn(key, 3, 5);
    await granted(backend, next);
    await heldBy(key, [two, next]);
    for (const claim of [two, next]) await releases(claim);
  });

  itHolds(
    ['permits'],
    'the smallest limit of all holders applies, and an attempt with a larger limit learns of it',
    async () => {
      const key = freshKey();
      const [wide, narrow] = [permitsOn(key, 1, 5), permitsOn(key, 1, 2)];
      equal((await acquired(wide)).smallerLimit, undefined, 'the smallerLimit of the first holder');
      equal((await acquired(narrow)).smallerLimit, undefined, 'the smallerLimit of the holder with the smallest limit');
      await refused(permitsOn(key, 1, 5), { smallerLimit: 2 });
      equal((await refused(permitsOn(key, 1, 2))).smallerLimit, undefined, 'the smallerLimit of an equal limit');
      await releases(wide);
      const fitting = permitsOn(key, 1, 5);
      equal((await acquired(fitting)).smallerLimit, 2, 'the smallerLimit of an attempt that fits');
      await releases(narrow);
      const three = permitsOn(key, 3, 5);
      equal(
        (await acquired(three)).smallerLimit,
        undefined,
        'the smallerLimit after that holder has released its permit',
      );
      equal(
        (await refused(permitsOn(key, 1, 2))).smallerLimit,
        undefined,
        'the smallerLimit of an attempt whose own limit is too small',
      );
      for (const claim of [fitting, three]) await releases(claim);
    },
  );

  itHolds(['permits'], 'the permits and the limit of an expired holder do not count', async () => {
    const key = freshKey();
    const [short, long] = [permitsOn(key, 1, 2, 200), permitsOn(key, 1, 4)];
    const { sentAt } = await granted(backend, short);
    await granted(backend, long);
    await untilHeldBy(key, long);
    const three = permitsOn(key, 3, 4);
    equal((await acquired(three)).smallerLimit, undefined, 'the smallerLimit');
    notBefore(200, sentAt);
    await refused(permitsOn(key, 1, 4));
    await heldBy(key, [long, three]);
    for (const claim of [long, three]) await releases(claim);
  });

  itHolds(
    ['permits'],
    'the other attempts in a request get permits too, as long as permits are free, each with a grant of its own',
    async () => {
      const key = freshKey();
      const others = [1, 2, 3].map(() => permitsOn(key, 2, 7));
      const first = permitsOn(key, 1, 7);
      await granted(backend, first);
      const asking = { ...permitsOn(key, 2, 7), others: others.map(({ owner }) => owner) };
      for (const what of ['the other owners in a grant', 'the other owners after a repeated attempt']) {
        const outcome = await acquired(asking);
        const owners = (outcome.others ?? []).map(({ owner }) => owner);
        equal(owners, asking.others.slice(0, 2), what);
        for (const [at, grant] of outcome.others!.entries()) others[at]!.grant = grant;
      }
      await heldBy(key, [first, asking, others[0]!, others[1]!]);
      others[0]!.ttlMs = 60_000;
      await extensionIs(others[0]!, { status: 'extended' });
      between(await leftOf(others[0]!), 30_000, 60_000, 'what is left of 60 s');
      await releases(asking);
      await releases(others[1]!);
      await heldBy(key, [first, others[0]!]);
      for (const claim of [first, others[0]!]) await releases(claim);
    },
  );

  itHolds(
    ['permits'],
    'an attempt that does not fit is refused together with the other attempts in its request',
    async () => {
      const key = freshKey();
      const holder = permitsOn(key, 2, 3);
      await granted(backend, holder);
      await refused({ ...permitsOn(key, 2, 3), others: [permitsOn(key, 2, 3).owner] });
      await heldBy(key, [holder]);
      await releases(holder);
    },
  );

  itServes(['shared'], 'nobody overtakes an exclusive attempt that waits for a shared lock', async (key) => {
    const [holder, waiting, late] = [sharedOn(key), claimOn(key), sharedOn(key)];
    await granted(backend, holder);
    const place = await waits(waiting, 300);
    await refused(sharedOn(key), { queued: false });
    const latePlace = await waits(late, 100);
    await heldBy(key, [holder]);
    await releases(holder);
    await comesIn(waiting, place);
    await staysOut(late, latePlace);
    await heldBy(key, [waiting]);
    await releases(waiting);
    await comesIn(late, latePlace);
    await releases(late);
  });

  itServes(['shared'], 'the shared attempts at the head of the queue get the lock together', async (key) => {
    const holder = claimOn(key);
    const { fencingToken } = await granted(backend, holder);
    const [one, two, exclusive, last] = [sharedOn(key), sharedOn(key), claimOn(key), sharedOn(key)];
    const places = [];
    for (const [at, claim] of [one, two, exclusive, last].entries()) places.push(await waits(claim, 400 - 100 * at));
    await releases(holder);
    const first = await comesIn(one, places[0]!);
    const second = await comesIn(two, places[1]!);
    equal(second.grant.fencingToken, first.grant.fencingToken, 'the fencing token of the second');
    between(first.grant.fencingToken, fencingToken + 1, Infinity, 'their fencing token');
    await heldBy(key, [one, two]);
    await staysOut(exclusive, places[2]!);
    await staysOut(last, places[3]!);
    await releases(one);
    await staysOut(exclusive, places[2]!);
    await releases(two);
    await comesIn(exclusive, places[2]!);
    await staysOut(last, places[3]!);
    await releases(exclusive);
    await comesIn(last, places[3]!);
    between(last.grant!.fencingToken, exclusive.grant!.fencingToken! + 1, Infinity, 'the fencing token of the last');
    await releases(last);
  });

  itServes(['permits'], 'a waiting attempt at several permits is not overtaken by smaller ones', async (key) => {
    const [holder, large, small] = [permitsOn(key, 2, 3), permitsOn(key, 2, 3), permitsOn(key, 1, 3)];
    await granted(backend, holder);
    const place = await waits(large, 300);
    await refused(permitsOn(key, 1, 3), { queued: false });
    const smallPlace = await waits(small, 100);
    await releases(holder);
    await comesIn(large, place);
    await comesIn(small, smallPlace);
    await heldBy(key, [large, small]);
    for (const claim of [large, small]) await releases(claim);
  });

  itServes(
    ['shared'],
    'an exclusive attempt that gives up its place makes way for the attempts behind it',
    async (key) => {
      const [holder, leaving, behind] = [sharedOn(key), claimOn(key), sharedOn(key)];
      const { fencingToken } = await granted(backend, holder);
      const place = await waits(leaving, 300);
      const placeBehind = await waits(behind, 100);
      backend.waitQueue!.leave(key, place);
      const { grant } = await comesIn(behind, placeBehind);
      equal(grant.fencingToken, fencingToken, 'its fencing token');
      await heldBy(key, [holder, behind]);
      for (const claim of [holder, behind]) await releases(claim);
    },
  );

  itServes(['shared'], 'a waiting attempt gets the lock after a forced release from all holders', async (key) => {
    const [one, other, waiting] = [sharedOn(key), sharedOn(key), claimOn(key)];
    for (const claim of [one, other]) await granted(backend, claim);
    const place = await waits(waiting, 100);
    await backend.forceRelease(key, one.owner);
    await staysOut(waiting, place);
    await backend.forceRelease(key);
    await comesIn(waiting, place);
    await releases(waiting);
  });

  itServes(['permits'], 'a waiting attempt gets a permit when another holder expires', async (key) => {
    const [short, long, waiting] = [permitsOn(key, 1, 2, 400), permitsOn(key, 1, 2), permitsOn(key, 1, 2)];
    const { sentAt } = await granted(backend, short);
    await granted(backend, long);
    const place = await waits(waiting, 100);
    await asksUntilGranted(waiting, place);
    notBefore(400, sentAt);
    await heldBy(key, [long, waiting]);
    for (const claim of [long, waiting]) await releases(claim);
  });

  itServes(['permits'], 'the other attempts in a request get permits only if nobody waits', async (key) => {
    const [holder, asking, behind] = [claimOn(key), permitsOn(key, 1, 4), claimOn(key)];
    await granted(backend, holder);
    const place = await waits(asking, 300);
    const placeBehind = await waits(behind, 100);
    await releases(holder);
    const { others = [] } = await comesIn({ ...asking, others: [permitsOn(key, 1, 4).owner] }, place);
    equal(others.length, 0, 'the number of other grants while an attempt waits');
    await heldBy(key, [asking]);
    backend.waitQueue!.leave(key, placeBehind);
    const next = permitsOn(key, 1, 4);
    const other = permitsOn(key, 1, 4);
    await until(
      async () => {
        const outcome = await acquireOn(backend, { ...next, others: [other.owner] });
        return outcome.status === 'acquired' && outcome.others?.length === 1;
      },
      { what: 'nobody waits, and the other attempt is granted' },
    );
    await heldBy(key, [asking, next, other]);
    for (const claim of [asking, next, other]) await releases(claim);
  });
}

/** Makes a place in the queue for the attempt. @param agoMs how long ago the attempt came */
function placeOf({ owner, hold = HOLDS.exclusive }: Claim, agoMs = 0): Place {
  return { ticket: owner, hold, turns: 1, calls: 1, arrivedAt: monotonic() - agoMs, isTaken: false };
}
