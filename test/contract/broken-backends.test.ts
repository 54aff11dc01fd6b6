import { expect, it } from 'vitest';
import { type BackendUnderTest, describeBackend, fromPromises, type PromiseBackend } from 'nest-redis-lock/testing';
import { now } from '../support/claims.js';
import { QueuedMemory } from './queued-memory.js';
import { ToyBackend } from './toy-backend.js';
import { ToyCrowd } from './toy-crowd.js';

/** The functions of a test runner that only notes what it is given, and what it has noted. */
function noting() {
  const tests = new Map<string, () => Promise<void>>();
  const before: (() => Promise<void>)[] = [];
  const after: (() => Promise<void>)[] = [];
  const runner = {
    describe: (_name: string, body: () => void) => body(),
    it: (sentence: string, run: () => Promise<void>) => void tests.set(sentence, run),
    beforeAll: (run: () => Promise<void>) => void before.push(run),
    afterAll: (run: () => Promise<void>) => void after.push(run),
  };
  return { runner, tests, before, after };
}

/** Runs one test of the contract. @throws what that throws */
async function runOne(sentence: string, setUp: () => Promise<BackendUnderTest>): Promise<void> {
  const { runner, tests, before, after } = noting();
  describeBackend('of a test', setUp, runner);
  for (const run of before) await run();
  try {
    await tests.get(sentence)!();
  } finally {
    for (const run of after) await run();
  }
}

/** A toy backend with a defect. */
function defective(defect: (toy: ToyBackend) => Partial<PromiseBackend>): () => Promise<BackendUnderTest> {
  return async () => {
    const toy = new ToyBackend(now);
    return { backend: fromPromises(Object.assign(toy, defect(toy))) };
  };
}

const { acquire, extend, release, list, transfer } = ToyBackend.prototype;
const { fits } = ToyCrowd.prototype;

it.each<[defect: string, sentence: string, message: string, (toy: ToyBackend) => Partial<PromiseBackend>]>([
  [
    'grants a lock that is held',
    'one of many simultaneous attempts gets the lock',
    'how many of 20 simultaneous attempts are acquired and contended should be [ 1, 19 ], and is [ 2, 18 ]',
    (toy) => ({
      acquire: async (request) => {
        const outcome = await acquire.call(toy, request);
        if (outcome.status === 'acquired') return outcome;
        await toy.forceRelease(request.key);
        return acquire.call(toy, request);
      },
    }),
  ],
  [
    'lets anybody release a lock',
    'a second release, and that of an attempt that did not win, find nothing to release',
    "the status of the release should be 'gone', and is 'released'",
    (toy) => ({
      release: async ({ key }) => {
        await toy.forceRelease(key);
        return { status: 'released' };
      },
    }),
  ],
  [
    'lets anybody extend a lock',
    "an extension of another holder's lock fails",
    "the outcome of the extension should have { status: 'lost', reason: 'stolen' }, and is { status: 'extended'",
    (toy) => ({
      extend: async (request) => {
        const owner = (await toy.inspect(request.grant.key))?.holders[0].owner ?? '';
        return extend.call(toy, { ...request, grant: { ...request.grant, owner } });
      },
    }),
  ],
  [
    'mints the same token again',
    'each grant has a larger fencing token: after a release, an expiry and a forced release',
    'the fencing tokens of 5 grants in turn should be [ 1 ], and is [ 1, 1, 1, 1, 1 ]',
    (toy) => ({
      acquire: async (request) => {
        const outcome = await acquire.call(toy, request);
        if (outcome.status !== 'acquired') return outcome;
        return { status: 'acquired', grant: { ...outcome.grant, fencingToken: 1, lastToken: 1 } };
      },
    }),
  ],
  [
    'ends a lease too early',
    'a lock is free when its ttl is over, and a late release leaves the new holder alone',
    'the lock should stand for 200 ms, and was granted again after ',
    (toy) => ({ acquire: (request) => acquire.call(toy, { ...request, ttlMs: request.ttlMs / 2 }) }),
  ],
  [
    'lets an attempt that comes late take the lock of the next holder',
    'commands that come a second time, late, leave the next holder alone, and a lock that such an attempt makes for nobody ends by itself',
    "the outcome of the late attempt should have { status: 'contended', owner: ",
    (toy) => {
      const seen = new Set<string>();
      return {
        acquire: async (request) => {
          if (seen.has(request.owner)) await toy.forceRelease(request.key);
          seen.add(request.owner);
          return acquire.call(toy, request);
        },
      };
    },
  ],
  [
    'does not keep a lock',
    'a lock that is kept is shown so, and granted to nobody',
    'the owner that an inspection shows should be ',
    (toy) => ({ release: (grant) => release.call(toy, grant, {}) }),
  ],
  [
    'takes any mode for exclusive',
    'an attempt to hold a lock in a way that the store does not know is refused with a sentence of its own',
    "the status of an attempt whose hold.mode is 'sideways' should be 'unavailable', and is 'acquired'",
    (toy) => ({ acquire: (request) => acquire.call(toy, { ...request, hold: { mode: 'exclusive' } }) }),
  ],
  [
    'transfers a lock from whoever holds it',
    'a lock is not transferred that is free, kept, or of another owner',
    "the outcome of the transfer should have { status: 'lost', reason: 'stolen' }, and is { status: 'transferred'",
    (toy) => ({
      transfer: async (request) => {
        const from = (await toy.inspect(request.key))?.holders[0].owner ?? '';
        return transfer.call(toy, { ...request, from });
      },
    }),
  ],
  [
    'transfers a lock once, and not again',
    'a transfer that is sent again changes nothing but the ttl, which starts anew',
    "the outcome of the transfer should have { status: 'transferred' }, and is { status: 'lost', reason: 'stolen' }",
    (toy) => ({ transfer: (request) => transfer.call(toy, { ...request, to: `${request.to}${Math.random()}` }) }),
  ],
  [
    'transfers a lock with its old token',
    'a lock that is transferred with a new token has a larger one, and the next grant a larger one still',
    'its fencing token should be from ',
    (toy) => ({ transfer: (request) => transfer.call(toy, { ...request, mints: false }) }),
  ],
  [
    'cannot transfer a lock, and does not say why',
    'one of many simultaneous transfers from the same owner succeeds',
    'a backend without transfer should have whyNoTransfer, which says why',
    () => ({ transfer: undefined, whyNoTransfer: '' }),
  ],
  [
    'always throws',
    'each grant has a larger fencing token: after a release, an expiry and a forced release',
    'the disk is full',
    () => ({ acquire: () => Promise.reject(new Error('the disk is full')) }),
  ],
  [
    'always throws, where the test waits until the lock is free',
    'a lock is free when its ttl is over, and a late release leaves the new holder alone',
    'acquire did not succeed, as the backend is unavailable: toy: the disk is full',
    (toy) => {
      let attempts = 0;
      return {
        acquire: (request) => (attempts++ ? Promise.reject(new Error('the disk is full')) : acquire.call(toy, request)),
      };
    },
  ],
  [
    'forgets to answer to a release',
    'a second release, and that of an attempt that did not win, find nothing to release',
    'release did not succeed, as the backend is unavailable: toy: release() must answer with an object that has a status: got undefined',
    () => ({ release: () => Promise.resolve(undefined as never) }),
  ],
  [
    'ignores the limit of a list',
    'a list has the locks that fit and are held or kept, as an inspection shows them, up to its limit',
    'the length of a list of one, and whether it is complete should be [ 1, false ], and is [ 2, true ]',
    (toy) => ({ list: (request) => list.call(toy, { ...request, limit: 1_000 }) }),
  ],
])('the contract finds a backend that %s', async (_defect, sentence, message, defect) => {
  await expect(runOne(sentence, defective(defect))).rejects.toThrow(message);
  await expect(
    runOne(
      sentence,
      defective(() => ({})),
    ),
  ).resolves.toBeUndefined();
});

it.each<[defect: string, sentence: string, message: string, (toy: ToyCrowd) => Partial<ToyCrowd>]>([
  [
    'counts holders whose time is over',
    'the permits and the limit of a holder whose time is over do not count',
    "the status of an attempt that fits should be 'acquired', and is 'contended'",
    () => ({ counted: (members) => [...members] }),
  ],
  [
    'heeds the limit of the attempt alone',
    'the smallest limit of all holders counts, and who names a larger one learns of it',
    "the outcome of an attempt that does not fit should have { status: 'contended', smallerLimit: 2 }, and is { status: 'acquired'",
    () => ({ limitOf: (_members, limit) => limit }),
  ],
  [
    'grants more permits than there are',
    'no more permits are granted than fit, however many ask at once',
    'how many of 20 attempts at 3 permits are acquired and contended should be [ 3, 17 ], and is [ 4, 16 ]',
    () => ({ limitOf: (_members, limit) => limit + 1 }),
  ],
  [
    'mints a token for each who shares a lock',
    'all attempts to share a lock are granted it, with one fencing token',
    'the number of fencing tokens of 20 who share a lock should be 1, and is 20',
    (toy) => ({ sharedToken: () => toy.nextToken() }),
  ],
  [
    'gives all who ever share a lock one token',
    'who shares a lock has the token of those who hold it, and a larger one than all before them',
    'the fencing tokens of an exclusive lock between two that were shared should be ',
    () => ({ sharedToken: () => 1 }),
  ],
  [
    'extends all holders at once',
    'an extension of a lock that is shared changes the end of its own holder alone',
    'what is left of 60 s for the other should be from 40000 to 60000, and is ',
    () => ({ prolong: (_member, endsAt, members) => members.forEach((each) => void (each.endsAt = endsAt)) }),
  ],
  [
    'extends all holders at least as far',
    'an extension of a lock of permits changes the end of its own holder alone',
    'what is left of 40 s for the other should be from 0 to 40000, and is ',
    () => ({
      prolong: (member, endsAt, members) => {
        for (const each of members) each.endsAt = Math.max(each.endsAt, endsAt);
        member.endsAt = endsAt;
      },
    }),
  ],
  [
    'frees a lock with the release of one holder',
    'a holder of a lock of permits who releases it leaves it to the others',
    'the owners that an inspection shows should be ',
    () => ({ without: () => [] }),
  ],
  [
    'shares an exclusive lock',
    'an exclusive lock, a shared one and permits exclude each other',
    "the outcome of an attempt (shared) beside a holder (exclusive) should have { status: 'contended'",
    (toy) => ({ fits: (members, hold) => hold.mode === 'shared' || fits.call(toy, members, hold) }),
  ],
  [
    'grants an exclusive lock beside permits',
    'an exclusive lock, a shared one and permits exclude each other',
    "the outcome of an attempt (exclusive) beside a holder (permits) should have { status: 'contended'",
    (toy) => ({
      fits: (members, hold) => members[0]?.hold.mode === 'permits' || fits.call(toy, members, hold),
    }),
  ],
  [
    'counts an attempt that is sent again twice',
    'an attempt at a lock of permits that is sent again is the same holder, with a new ttl',
    'the owners that an inspection shows should be ',
    (toy) => {
      const { acquire } = toy;
      return {
        acquire: async (request) => {
          const isThere = (await toy.inspect(request.key))?.holders.some(({ owner }) => owner === request.owner);
          return acquire.call(toy, { ...request, owner: isThere ? `${request.owner}0` : request.owner });
        },
      };
    },
  ],
  [
    'grants the others of an attempt whether they fit or not',
    'the others of an attempt are granted beside it as far as they fit, each on its own',
    'the others of a grant should be ',
    (toy) => {
      const { acquire } = toy;
      return {
        acquire: async (request) => {
          const outcome = await acquire.call(toy, request);
          if (outcome.status !== 'acquired') return outcome;
          return { ...outcome, others: request.others?.map((owner) => ({ key: request.key, owner })) ?? [] };
        },
      };
    },
  ],
  [
    'takes a lock by force from all instead of one',
    'a lock that is shared is taken by force from one holder, or from all',
    'what one from a holder returns should be ',
    (toy) => {
      const { forceRelease } = toy;
      return {
        forceRelease: async (key, from) => {
          const isHolder = (await toy.inspect(key))?.holders.some(({ owner }) => owner === from);
          return forceRelease.call(toy, key, isHolder ? undefined : from);
        },
      };
    },
  ],
])(
  'the contract finds a backend that several may hold locks of, and that %s',
  async (_what, sentence, message, defect) => {
    const setUp = (change: typeof defect) => async () => {
      const toy = new ToyCrowd(now);
      return { backend: fromPromises(Object.assign(toy, change(toy))) };
    };
    await expect(runOne(sentence, setUp(defect))).rejects.toThrow(message);
    await expect(
      runOne(
        sentence,
        setUp(() => ({})),
      ),
    ).resolves.toBeUndefined();
  },
);

it.each<[defect: string, sentence: string, message: string, Partial<QueuedMemory>]>([
  [
    'lets who comes later overtake a place',
    'nobody overtakes an exclusive attempt that waits for those who share the lock',
    "the outcome of an attempt that does not fit should have { status: 'contended', queued: false }, and is { status: 'acquired'",
    { placesBefore: () => [] },
  ],
  [
    'lets permits overtake a place',
    'an attempt at several permits that waits is not overtaken by smaller ones',
    "the outcome of an attempt that does not fit should have { status: 'contended', queued: false }, and is { status: 'acquired'",
    { placesBefore: () => [] },
  ],
  [
    'grants the others of an attempt while one waits',
    'the others of an attempt are granted only if nobody waits',
    'the number of others that are granted while one waits should be 0, and is 1',
    { placesBehind: () => [] },
  ],
])('the contract finds a backend with a queue that %s', async (_defect, sentence, message, defect) => {
  const setUp = (change: typeof defect) => async () => ({ backend: Object.assign(new QueuedMemory(now), change) });
  await expect(runOne(sentence, setUp(defect))).rejects.toThrow(message);
  await expect(runOne(sentence, setUp({}))).resolves.toBeUndefined();
});

it('the check of what is left gets the beginning of all keys that it is to look for', async () => {
  const asked: string[] = [];
  const toy = new ToyBackend(now);
  toy.acquire = (request) => (asked.push(request.key), acquire.call(toy, request));
  let prefix: string | undefined;
  await runOne('locks that were released leave nothing in the store but what it shares among all locks', async () => ({
    backend: fromPromises(toy),
    checkLeft: async (given) => void (prefix = given),
  }));
  expect(prefix).toMatch(/^left-/);
  expect(asked.length).toBeGreaterThan(1);
  expect(asked.filter((key) => !key.startsWith(prefix!))).toEqual([]);
});

it('the contract without a test runner is refused, and says how to pass one', () => {
  const setUp = defective(() => ({}));
  const refusal = {
    code: 'LOCK_OPTIONS',
    message: expect.stringContaining('describeBackend(name, setUp, { describe, it, beforeAll, afterAll })'),
  };
  expect(() => describeBackend('of a test', setUp)).toThrow(expect.objectContaining(refusal));
  const { describe, it: test } = noting().runner;
  expect(() => describeBackend('of a test', setUp, { describe, it: test } as never)).toThrow(
    /does not find beforeAll, afterAll\./,
  );
});
