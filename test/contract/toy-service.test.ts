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
