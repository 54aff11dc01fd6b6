import { expect, it } from 'vitest';
import { type BackendUnderTest, describeBackend, fromPromises, type PromiseBackend } from 'nest-redis-lock/testing';
import { now } from '../support/claims.js';
import { QueuedMemory } from './queued-memory.js';
import { ToyBackend } from './toy-backend.js';
import { ToyCrowd } from './toy-crowd.js';

/** The functions of a test runner that only records what it gets, and its records. */
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

/**
 * Runs one test of the contract.
 * @throws the error of that test
 */
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

/** A toy backend with a defect: without it, the toys pass in lock-backend.test.ts. */
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
    'only one of many simultaneous attempts gets the lock',
    'how many of 20 simultaneous attempts are acquired and contended should be [ 1, 19 ], but is [ 2, 18 ]',
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
    'a second release, and a release by an attempt that did not win, find nothing to release',
    "the status of the release should be 'gone', but is 'released'",
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
    "the outcome of the extension should have { status: 'lost', reason: 'stolen' }, but is { status: 'extended'",
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
    'the fencing tokens of 5 grants in turn should be [ 1 ], but is [ 1, 1, 1, 1, 1 ]',
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
    'a lock is free once its ttl has passed, and a late release leaves the new holder alone',
    'the lock should be held for 200 ms, but was granted again after ',
    (toy) => ({ acquire: (request) => acquire.call(toy, { ...request, ttlMs: request.ttlMs / 2 }) }),
  ],
  [
    'lets an attempt that comes late take the lock of the next holder',
    'commands that arrive again later leave the next holder alone, and a lock that such a late attempt acquires expires by itself',
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
    'an inspection shows that a lock is kept, and nobody else gets it',
    'the owner that an inspection shows should be ',
    (toy) => ({ release: (grant) => release.call(toy, grant, {}) }),
  ],
  [
    'takes any mode for exclusive',
    'an attempt with a mode that the store does not support is refused with a message of its own',
    "the status of an attempt whose hold.mode is 'sideways' should be 'unavailable', but is 'acquired'",
    (toy) => ({ acquire: (request) => acquire.call(toy, { ...request, hold: { mode: 'exclusive' } }) }),
  ],
  [
    'transfers a lock from any holder',
    'a transfer fails if the lock is free, kept, or held by another owner',
    "the outcome of the transfer should have { status: 'lost', reason: 'stolen' }, but is { status: 'transferred'",
    (toy) => ({
      transfer: async (request) => {
        const from = (await toy.inspect(request.key))?.holders[0].owner ?? '';
        return transfer.call(toy, { ...request, from });
      },
    }),
  ],
  [
    'transfers a lock once, and not again',
    'a repeated transfer restarts the ttl and changes nothing else',
    "the outcome of the transfer should have { status: 'transferred' }, but is { status: 'lost', reason: 'stolen' }",
    (toy) => ({ transfer: (request) => transfer.call(toy, { ...request, to: `${request.to}${Math.random()}` }) }),
  ],
  [
    'transfers a lock with its old token',
    'a transfer with a new token gives the lock a larger token, and the next grant has a still larger one',
    'its fencing token should be from ',
    (toy) => ({ transfer: (request) => transfer.call(toy, { ...request, mints: false }) }),
  ],
  [
    'cannot transfer a lock, and does not say why',
    'only one of many simultaneous transfers from the same owner succeeds',
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
    'a lock is free once its ttl has passed, and a late release leaves the new holder alone',
    'acquire failed because the backend is unavailable: toy: the disk is full',
    (toy) => {
      let attempts = 0;
      return {
        acquire: (request) => (attempts++ ? Promise.reject(new Error('the disk is full')) : acquire.call(toy, request)),
      };
    },
  ],
  [
    'forgets to answer to a release',
    'a second release, and a release by an attempt that did not win, find nothing to release',
    'release failed because the backend is unavailable: toy: release() must answer with an object that has a status: got undefined',
    () => ({ release: () => Promise.resolve(undefined as never) }),
  ],
  [
    'ignores the limit of a list',
    'a list contains the matching locks that are held or kept, as an inspection shows them, up to its limit',
    'the length of a list of one, and whether it is complete should be [ 1, false ], but is [ 2, true ]',
    (toy) => ({ list: (request) => list.call(toy, { ...request, limit: 1_000 }) }),
  ],
])('the contract finds a backend that %s', async (_defect, sentence, message, defect) => {
  await expect(runOne(sentence, defective(defect))).rejects.toThrow(message);
});

it.each<[defect: string, sentence: string, message: string, (toy: ToyCrowd) => Partial<ToyCrowd>]>([
  [
    'counts holders whose time is over',
    'the permits and the limit of an expired holder do not count',
    "the status of an attempt that fits should be 'acquired', but is 'contended'",
    () => ({ counted: (members) => [...members] }),
  ],
  [
    'heeds the limit of the attempt alone',
    'the smallest limit of all holders applies, and an attempt with a larger limit learns of it',
    "the outcome of an attempt that does not fit should have { status: 'contended', smallerLimit: 2 }, but is { status: 'acquired'",
    () => ({ limitOf: (_members, limit) => limit }),
  ],
  [
    'grants more permits than there are',
    'simultaneous attempts never get more permits than the limit',
    'how many of 20 attempts at 3 permits are acquired and contended should be [ 3, 17 ], but is [ 4, 16 ]',
    () => ({ limitOf: (_members, limit) => limit + 1 }),
  ],
  [
    'mints a token for each who shares a lock',
    'all attempts to share a lock get it, with the same fencing token',
    'the number of fencing tokens of 20 holders that share a lock should be 1, but is 20',
    (toy) => ({ sharedToken: () => toy.nextToken() }),
  ],
  [
    'gives all who ever share a lock one token',
    'holders that share a lock have one token, which is larger than all earlier tokens',
    'the fencing tokens of two shared locks between two exclusive locks should be ',
    () => ({ sharedToken: () => 1 }),
  ],
  [
    'extends all holders at once',
    'an extension of a shared lock changes only the end of its own holder',
    'what is left of 60 s for the other should be from 40000 to 60000, but is ',
    () => ({ prolong: (_member, endsAt, members) => members.forEach((each) => void (each.endsAt = endsAt)) }),
  ],
  [
    'extends all holders at least as far',
    'an extension of a lock with permits changes only the end of its own holder',
    'what is left of 40 s for the other should be from 0 to 40000, but is ',
    () => ({
      prolong: (member, endsAt, members) => {
        for (const each of members) each.endsAt = Math.max(each.endsAt, endsAt);
        member.endsAt = endsAt;
      },
    }),
  ],
  [
    'frees a lock with the release of one holder',
    'a holder that releases a lock with permits leaves it to the others',
    'the owners that an inspection shows should be ',
    () => ({ without: () => [] }),
  ],
  [
    'shares an exclusive lock',
    'an exclusive lock, a shared lock and permits exclude each other',
    "the outcome of an attempt (shared) while there is a holder (exclusive) should have { status: 'contended'",
    (toy) => ({ fits: (members, hold) => hold.mode === 'shared' || fits.call(toy, members, hold) }),
  ],
  [
    'grants an exclusive lock next to permits',
    'an exclusive lock, a shared lock and permits exclude each other',
    "the outcome of an attempt (exclusive) while there is a holder (permits) should have { status: 'contended'",
    (toy) => ({
      fits: (members, hold) => members[0]?.hold.mode === 'permits' || fits.call(toy, members, hold),
    }),
  ],
  [
    'counts an attempt that is sent again twice',
    'a repeated attempt at a lock with permits counts as the same holder, with a new ttl',
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
    'the other attempts in a request get permits too, as long as permits are free, each with a grant of its own',
    'the other owners in a grant should be ',
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
    'a forced release takes a shared lock from one holder, or from all',
    'the result of a forced release from one holder should be ',
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
])('the contract finds a backend with shared locks and permits that %s', async (_what, sentence, message, defect) => {
  const setUp = async () => {
    const toy = new ToyCrowd(now);
    return { backend: fromPromises(Object.assign(toy, defect(toy))) };
  };
  await expect(runOne(sentence, setUp)).rejects.toThrow(message);
});

it.each<[defect: string, sentence: string, message: string, Partial<QueuedMemory>]>([
  [
    'lets who comes later overtake a place',
    'nobody overtakes an exclusive attempt that waits for a shared lock',
    "the outcome of an attempt that does not fit should have { status: 'contended', queued: false }, but is { status: 'acquired'",
    { placesBefore: () => [] },
  ],
  [
    'lets permits overtake a place',
    'a waiting attempt at several permits is not overtaken by smaller ones',
    "the outcome of an attempt that does not fit should have { status: 'contended', queued: false }, but is { status: 'acquired'",
    { placesBefore: () => [] },
  ],
  [
    'grants the others of an attempt while one waits',
    'the other attempts in a request get permits only if nobody waits',
    'the number of other grants while an attempt waits should be 0, but is 1',
    { placesBehind: () => [] },
  ],
])('the contract finds a backend with a queue that %s', async (_defect, sentence, message, defect) => {
  const setUp = (change: typeof defect) => async () => ({ backend: Object.assign(new QueuedMemory(now), change) });
  await expect(runOne(sentence, setUp(defect))).rejects.toThrow(message);
  await expect(runOne(sentence, setUp({}))).resolves.toBeUndefined();
});

it('the check of leftovers gets the beginning of all keys that it looks for', async () => {
  const asked: string[] = [];
  const toy = new ToyBackend(now);
  toy.acquire = (request) => (asked.push(request.key), acquire.call(toy, request));
  let prefix: string | undefined;
  await runOne('released locks leave nothing in the store except what all locks share', async () => ({
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
