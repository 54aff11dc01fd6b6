import { expect, it, onTestFinished } from 'vitest';
import type { LockService, LockServiceOptions } from 'nest-redis-lock';
import { fromPromises } from 'nest-redis-lock/testing';
import { openService } from '../../lib/compose/composition.js';
import { processName } from '../../lib/compose/process-name.js';
import { resolveServiceOptions } from '../../lib/core/options/service-options.js';
import { now } from '../support/claims.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';

/** Lock services of two processes that share a toy backend. */
function services(toy = new ToyBackend(now), options: LockServiceOptions = {}): Promise<[LockService, LockService]> {
  const open = async () => {
    const { service } = await openService(fromPromises(toy, now), {
      options: resolveServiceOptions({ shutdownTimeoutMs: 0, ...options }),
      registration: 'default',
      now,
      processName: processName(),
    });
    onTestFinished(() => service.onApplicationShutdown());
    return service;
  };
  return Promise.all([open(), open()]);
}

it('a service on a backend without a queue waits by asking again, and gets the lock when it is released', async () => {
  const [one, other] = await services();
  const lock = await one.acquire('key');
  const waiting = other.acquire('key');
  expect(await other.tryAcquire('key')).toBeNull();
  expect(await lock.release()).toBe(true);
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  expect(await other.isLocked('key')).toBe(true);
  expect(await next.release()).toBe(true);
});

it('services on a backend without a queue let one call in at a time, whatever process it is of', async () => {
  const both = await services();
  let [running, most, done] = [0, 0, 0];
  const work = async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 1));
    running--;
    done++;
  };
  await Promise.all(Array.from({ length: 40 }, (_, index) => both[index % 2]!.withLock('key', work)));
  expect([most, done]).toEqual([1, 40]);
});

it('a lock on a backend without tokens works, and says so when it is asked for its token', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  toy.acquire = async (request) => {
    const outcome = await acquire.call(toy, request);
    if (outcome.status !== 'acquired') return outcome;
    const { key, owner } = outcome.grant;
    return { status: 'acquired', grant: { key, owner } as never };
  };
  const [locks] = await services(toy);
  const lock = await locks.acquire('key');
  expect(lock.isHeld).toBe(true);
  expect(() => lock.fencingToken).toThrow('Lock "key" has no fencing token: its store mints none.');
  await lock.extend();
  expect(await lock.release()).toBe(true);
});

it('a set that has waited for one lock has for the others what is left of its time, though the store owes their answers [G499]', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  let asked = 0;
  toy.acquire = (request) => (request.key === 'b' && asked++ > 0 ? new Promise(() => {}) : acquire.call(toy, request));
  toy.attemptTimeoutMs = () => 10_000;
  const [one, other] = await services(toy);
  const holder = await one.acquire('a');
  const ended: string[] = [];
  const refused = async (name: string, call: Promise<unknown>) => {
    await expect(call).rejects.toMatchObject({ code: expect.stringMatching(/^LOCK_(CONTENDED|UNAVAILABLE)$/) });
    ended.push(name);
  };
  const set = refused('set', other.acquireAll(['a', 'b'], { waitMs: 1_000 }));
  const half = performance.now() + 600;
  await until(() => performance.now() > half, { what: 'more than half of that is over' });
  await holder.release();
  await until(() => asked === 2, { what: 'it asks for the second one again' });
  const single = refused('single', other.acquire('b', { waitMs: 700 }));
  await Promise.all([set, single]);
  expect(ended).toEqual(['set', 'single']);
});

it('a service with a ttlMs that its backend cannot extend in time is refused, with the reason of the backend, and so is such a call', async () => {
  const toy = Object.assign(new ToyBackend(now), {
    bounds: { shortestTtlMs: { ms: 40_000, because: 'The toy is slow.' } },
  });
  const refusal = { code: 'LOCK_OPTIONS', message: 'ttlMs must be at least 40000: got 30000. The toy is slow.' };
  await expect(services(toy)).rejects.toMatchObject(refusal);
  const [locks] = await services(toy, { ttlMs: 40_000 });
  await expect(locks.acquire('key', { ttlMs: 30_000 })).rejects.toMatchObject(refusal);
});
