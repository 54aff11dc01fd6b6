import { expect, it } from 'vitest';
import { fromPromises, type PromiseBackend } from '../../lib/core/backend/from-promises.js';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AcquireRequest, LockBackend, Place, WaitQueue } from '../../lib/core/backend/lock-backend.js';
import { acquireOn, claimOn, extendOn, now, releaseOn } from '../support/claims.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';

/** A toy backend, some of whose methods are replaced. */
function broken(methods: Partial<PromiseBackend>, limitMs = 20): LockBackend {
  const toy = new ToyBackend(now);
  return fromPromises(Object.assign(toy, { attemptTimeoutMs: () => limitMs }, methods), now, limitMs);
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
  const backend = broken({ acquire: fails, extend: fails, release: fails });
  const unavailable = { status: 'unavailable', causes: [expect.objectContaining({ node: 'toy', problem })] };
  expect(await acquireOn(backend, claimOn('key'))).toEqual(unavailable);
  expect(await extendOn(backend, claimOn('key'))).toEqual(unavailable);
  expect(await releaseOn(backend, claimOn('key'))).toEqual(unavailable);
});

it.each([
  ['answers too late', (run: Promise<unknown>) => Promise.all([run, sleep(40)]).then(([outcome]) => outcome)],
  ['rejects after it ran', (run: Promise<unknown>) => run.then(() => Promise.reject(new Error('it broke')))],
])('a lock is given back when the attempt of a backend of promises %s', async (_what, spoil) => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  const backend = fromPromises(
    Object.assign(toy, {
      attemptTimeoutMs: () => 20,
      acquire: (request: AcquireRequest) => spoil(acquire.call(toy, request)) as ReturnType<typeof acquire>,
    }),
    now,
  );
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable' });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
});

it.each([
  ['is queued too late', () => sleep(40).then(() => ({ status: 'contended', queued: true }) as const), 2],
  ['rejects', reject, 1],
])('a place is given up when the attempt of a backend of promises %s', async (_what, acquire, times) => {
  const left: string[] = [];
  const place = { ticket: 'mine', isHeard: false };
  const backend = broken({
    acquire,
    waitQueue: { leave: (_key: string, { ticket }: Place) => left.push(ticket) } as Partial<WaitQueue> as WaitQueue,
  });
  expect(await acquireOn(backend, claimOn('key'), place)).toMatchObject({ status: 'unavailable' });
  await until(() => left.length >= times, { what: 'it is left' });
  expect(left).toEqual(Array(times).fill('mine'));
});

it('a backend of promises that closes tries once more what is not released', async () => {
  let tries = 0;
  const backend = broken({ release: () => (tries++, reject()) });
  await releaseOn(backend, claimOn('key'));
  await until(() => tries === 2, { what: 'it is tried again' });
  await backend.close();
  expect(tries).toBe(3);
});

it('a release of a backend of promises is repeated until it is confirmed', async () => {
  const toy = new ToyBackend(now);
  let failures = 2;
  const { release } = toy;
  toy.release = (grant) => (failures-- > 0 ? reject() : release.call(toy, grant));
  const backend = fromPromises(toy, now);
  const claim = claimOn('key');
  await acquireOn(backend, claim);
  expect(await releaseOn(backend, claim)).toMatchObject({ status: 'unavailable' });
  await until(async () => (await backend.inspect('key')) === undefined, { what: 'it is released' });
  expect(failures).toBe(-1);
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
