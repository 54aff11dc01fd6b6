import { expect, it } from 'vitest';
import { fromPromises, type PromiseBackend } from '../../lib/core/backend/from-promises.js';
import type { Grant, LockBackend } from '../../lib/core/backend/lock-backend.js';
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

it('a lock that a backend of promises grants too late is released', async () => {
  let answer!: (outcome: { status: 'acquired'; grant: Grant }) => void;
  const released: Grant[] = [];
  const backend = broken({
    acquire: () => new Promise((resolve) => (answer = resolve)),
    release: async (grant) => (released.push(grant), { status: 'released' }),
  });
  expect(await acquireOn(backend, claimOn('key'))).toMatchObject({ status: 'unavailable' });
  const grant = { key: 'key', owner: 'late' };
  answer({ status: 'acquired', grant });
  await until(() => released.length > 0, { what: 'it is released' });
  expect(released).toEqual([grant]);
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
