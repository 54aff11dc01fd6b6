import { expect, it, onTestFinished, vi } from 'vitest';
import {
  type AcquireRequest,
  fromPromises,
  type LockBackend,
  type Place,
  type PromiseBackend,
  type WaitQueue,
} from 'nest-redis-lock/testing';
import { acquireOn, claimOn, extendOn, now, placeOf, releaseOn, transferOn } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';
import { ToyCrowd } from './toy-crowd.js';

/** A toy backend, some of whose methods are replaced. Closed, it tries no release again while later tests count timers. */
function broken(methods: Partial<PromiseBackend>, limitMs = 20): LockBackend {
  const toy = new ToyBackend(now);
  const backend = fromPromises(Object.assign(toy, { attemptTimeoutMs: () => limitMs }, methods), now, limitMs);
  onTestFinished(() => backend.close());
  return backend;
}

const reject = () => Promise.reject(new Error('the disk is full'));
const throwAtOnce = () => {
  throw new Error('the disk is full');
};
const hang = () => new Promise<never>(() => {});

it.each([
  ['rejects', reject, 'the disk is full'],
  ['throws', throwAtOnce, 'the disk is full'],
  ['never settles', hang, 'no answer within 20 ms'],
])('a backend of promises that %s is unavailable, and says why', async (_what, fails, problem) => {
  const backend = broken({ acquire: fails, extend: fails, release: fails, transfer: fails });
  const unavailable = { status: 'unavailable', causes: [expect.objectContaining({ node: 'toy', problem })] };
  expect(await acquireOn(backend, claimOn('key'))).toEqual(unavailable);
  expect(await extendOn(backend, claimOn('key'))).toEqual(unavailable);
  expect(await releaseOn(backend, claimOn('key'))).toEqual(unavailable);
  const transferred = await transferOn(backend, claimOn('key'), claimOn('key'), { mints: true });
  expect(transferred).toEqual({ ...unavailable, mayHaveRun: true });
});

it('a backend of promises that forgets to answer is unavailable, and the operation is named', async () => {
  const silent = () => Promise.resolve(undefined as never);
  const backend = broken({ acquire: silent, extend: silent, release: silent, transfer: silent, list: silent });
  const because = (operation: string) => ({
    status: 'unavailable',
    causes: [{ node: 'toy', problem: `${operation}() must answer with an object that has a status: got undefined` }],
  });
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject(because('acquire'));
  expect(await extendOn(backend, claimOn('key'))).toMatchObject(because('extend'));
  expect(await releaseOn(backend, claimOn('key'))).toMatchObject(because('release'));
  expect(await transferOn(backend, claimOn('key'), claimOn('key'), { mints: true })).toMatchObject(because('transfer'));
  await expect(backend.list({ match: '*', limit: 1, budgetMs: 10 })).rejects.toThrow(
    'list() must answer with an object',
  );
});

it('a backend of promises that grants without a grant is unavailable, and the operation is named', async () => {
  const granting = { acquire: async () => ({ status: 'acquired' }), transfer: async () => ({ status: 'transferred' }) };
  const backend = broken(granting as unknown as Partial<PromiseBackend>);
  const problem = expect.stringContaining('acquire() must answer with a grant');
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable', causes: [{ problem }] });
  const transferred = await transferOn(backend, claimOn('key'), claimOn('key'), { mints: true });
  expect(transferred).toMatchObject({ status: 'unavailable', mayHaveRun: true });
});

it('an attempt of a backend of promises that answers nothing too late rejects nobody', async () => {
  const givenUp = new Gate();
  const backend = broken({ acquire: () => givenUp.opened as Promise<never> });
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable' });
  givenUp.open();
  await new Promise((resolve) => setImmediate(resolve)); // an unhandled rejection would fail the run
});

it('a backend of promises that cannot transfer a lock says so', () => {
  const backend = broken({ transfer: undefined });
  expect(backend.transfer).toBeUndefined();
  expect(backend.whyNoTransfer).toBe('The store "toy" cannot change the holder of a lock.');
});

it('a lock is given back when the attempt of a backend of promises answers too late', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  const givenUp = new Gate();
  const backend = fromPromises(
    Object.assign(toy, {
      attemptTimeoutMs: () => 20,
      acquire: async (request: AcquireRequest) => {
        const outcome = await acquire.call(toy, request);
        await givenUp.opened;
        return outcome;
      },
    }),
    now,
  );
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable' });
  givenUp.open();
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
});

it('a lock is given back when the attempt of a backend of promises rejects after it ran', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  toy.acquire = (request) => acquire.call(toy, request).then(reject);
  const backend = fromPromises(toy, now);
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable' });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
});

it.each([
  // Its releases have found nothing to release by then.
  ['runs too late', (run: () => Promise<unknown>, givenUp: Gate) => givenUp.opened.then(run)],
  ['rejects after it ran', (run: () => Promise<unknown>) => run().then(reject)],
])('all permits are given back when the attempt of a backend of promises %s', async (_what, runs) => {
  const toy = new ToyCrowd(now);
  const { acquire, release } = toy;
  const [givenUp, ran] = [new Gate(), new Gate()];
  const hold = { mode: 'permits', permits: 1, limit: 3 } as const;
  const claim = { ...claimOn('key', 3_600_000, hold), others: ['one', 'two'] };
  let outcome: Awaited<ReturnType<typeof acquire>> | undefined;
  const released: string[] = [];
  toy.release = async (grant, how) => {
    const answer = await release.call(toy, grant, how);
    released.push(grant.owner);
    return answer;
  };
  toy.acquire = async (request) => {
    const run = async () => {
      outcome = await acquire.call(toy, request);
      ran.open();
    };
    await runs(run, givenUp);
    return outcome!;
  };
  const backend = fromPromises(Object.assign(toy, { attemptTimeoutMs: () => 20 }), now);
  expect(await acquireOn(backend, claim)).toMatchObject({ status: 'unavailable' });
  await until(() => released.length >= 3, { what: 'each of the three is released' });
  givenUp.open();
  await ran.opened;
  expect(outcome).toMatchObject({ status: 'acquired', others: [{ owner: 'one' }, { owner: 'two' }] });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'nothing is held' });
});

it('a backend of promises names the modes in which it holds locks, or says why there are none', () => {
  expect(fromPromises(new ToyCrowd(now), now).modes).toEqual(['shared', 'permits']);
  const backend = broken({ whyOnlyExclusive: 'The disk is small.' });
  expect([backend.modes, backend.whyOnlyExclusive]).toEqual([undefined, 'The disk is small.']);
});

/** A backend of promises with a queue, and the tickets that left it. */
function queueing(acquire: PromiseBackend['acquire']) {
  const left: string[] = [];
  const leave = (_key: string, { ticket }: Place) => left.push(ticket);
  return { backend: broken({ acquire, waitQueue: { leave } as Partial<WaitQueue> as WaitQueue }), left };
}

const place = placeOf('mine');

it('a place is given up when the attempt of a backend of promises rejects', async () => {
  const { backend, left } = queueing(reject);
  expect(await acquireOn(backend, claimOn('key'), place)).toMatchObject({ status: 'unavailable' });
  expect(left).toEqual(['mine']);
});

it('a place is given up once more when the attempt of a backend of promises is queued too late', async () => {
  const givenUp = new Gate();
  const { backend, left } = queueing(async () => {
    await givenUp.opened;
    return { status: 'contended', queued: true };
  });
  expect(await acquireOn(backend, claimOn('key'), place)).toMatchObject({ status: 'unavailable' });
  expect(left).toEqual(['mine']);
  givenUp.open();
  await until(() => left.length === 2, { what: 'it is left again' });
});

it('a backend of promises that closes tries once more what is not released', async () => {
  let tries = 0;
  const backend = broken({ release: () => (tries++, reject()) });
  await releaseOn(backend, claimOn('key'));
  await until(() => tries === 2, { what: 'it is tried again' });
  await backend.close();
  expect(tries).toBe(3);
});

it('10 000 locks that are released in an outage of a backend of promises cost one timer and few commands, and are free once it answers [G644]', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let isDown = true;
  let commands = 0;
  const released = new Set<string>();
  const backend = broken(
    {
      release: ({ key }) => {
        commands++;
        if (isDown) return reject();
        released.add(key);
        return Promise.resolve({ status: 'released' });
      },
    },
    1_000,
  );
  const claims = Array.from({ length: 10_000 }, (_, index) => claimOn(`key ${index}`));
  const outcomes = await Promise.all(claims.map((claim) => releaseOn(backend, claim)));
  expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['unavailable']));
  expect(commands).toBe(claims.length);
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect((commands - claims.length) / 60).toBeLessThan(50);
  expect(vi.getTimerCount()).toBe(1);
  isDown = false;
  await vi.advanceTimersByTimeAsync(4_000);
  expect(released.size).toBe(claims.length);
  expect(vi.getTimerCount()).toBe(0);
});

it('a release of a backend of promises is repeated until it is confirmed', async () => {
  const toy = new ToyBackend(now);
  let failures = 2;
  const { release } = toy;
  toy.release = (grant, how) => (failures-- > 0 ? reject() : release.call(toy, grant, how));
  const backend = fromPromises(toy, now);
  const claim = claimOn('key');
  await acquireOn(backend, claim);
  expect(await releaseOn(backend, claim)).toMatchObject({ status: 'unavailable' });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
  expect(failures).toBe(-1);
});

it('a lock that a backend of promises does not keep at once is kept for what is left, and released when nothing is', async () => {
  const toy = new ToyBackend(now);
  const times: number[] = [];
  const { release } = toy;
  toy.release = (grant, { keepUntil }) => {
    const leftMs = keepUntil! - now();
    times.push(leftMs);
    return leftMs > 0 ? reject() : release.call(toy, grant, { keepUntil });
  };
  const backend = fromPromises(toy, now);
  const claim = claimOn('key', 60_000);
  await acquireOn(backend, claim);
  expect(await releaseOn(backend, claim, 150)).toMatchObject({ status: 'unavailable' });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
  expect(times[0]).toBeGreaterThan(100);
  expect(times.at(-1)).toBeLessThanOrEqual(0);
  expect(times.length).toBeGreaterThan(2);
});

it('a lock that a backend of promises keeps at its closing is kept for what is left, though the clock was set ahead', async () => {
  let aheadMs = 0;
  const clock = () => now() + aheadMs;
  const toy = new ToyBackend(clock);
  const times: (number | undefined)[] = [];
  toy.release = (_grant, { keepUntil }) => {
    times.push(keepUntil);
    return reject();
  };
  const backend = fromPromises(toy, clock);
  const claim = claimOn('key', 60_000);
  await acquireOn(backend, claim);
  expect(await releaseOn(backend, claim, 30_000)).toMatchObject({ status: 'unavailable' });
  aheadMs = 40_000;
  await backend.close();
  expect(times.length).toBeGreaterThan(1);
  expect(times.at(-1)! - now()).toBeGreaterThan(20_000);
});

it.each([
  ['rejects', reject, 'the disk is full'],
  ['never settles', hang, 'no answer within 20 ms'],
])(
  'looking at a lock whose backend of promises %s is refused, and the report says so',
  async (_what, fails, problem) => {
    const backend = broken({ inspect: fails, forceRelease: fails, report: fails });
    const unavailable = expect.objectContaining({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining(problem),
    });
    await expect(backend.inspect('key')).rejects.toEqual(unavailable);
    await expect(backend.forceRelease('key')).rejects.toEqual(unavailable);
    const { findings } = await backend.report(20);
    expect(findings).toEqual([expect.objectContaining({ message: `toy could not be checked: ${problem}.` })]);
  },
);

it.each([
  ['rejects', reject, 'the disk is full'],
  ['throws', throwAtOnce, 'the disk is full'],
  ['never settles', hang, 'no answer within 20 ms'],
])('a ping of a backend of promises that %s answers with the problem', async (_what, fails, problem) => {
  const answer = {
    available: false,
    nodes: { voting: 0, of: 1 },
    problems: [expect.objectContaining({ node: 'toy', problem })],
  };
  expect(await broken({ inspect: fails }).ping()).toEqual(answer);
  expect(await broken({ ping: fails }).ping()).toEqual(answer);
});

it('callbacks of a backend of promises come after the call has returned, once', async () => {
  const backend = broken({}, 1_000);
  const calls: string[] = [];
  await new Promise<void>((resolve) => {
    backend.acquire(claimOn('key'), ({ status }) => {
      calls.push(status);
      resolve();
    });
    calls.push('returned');
  });
  expect(calls).toEqual(['returned', 'acquired']);
});

it('a lease of a backend of promises counts from before its method was called', async () => {
  let calledAt = Infinity;
  const toy = new ToyBackend(now, 10);
  const backend = broken(
    {
      acquire: async (request) => {
        calledAt = now();
        return toy.acquire(request);
      },
    },
    1_000,
  );
  const outcome = await acquireOn(backend, claimOn('key'));
  expect((outcome as { sentAt: number }).sentAt).toBeLessThanOrEqual(calledAt);
});
