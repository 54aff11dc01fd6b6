import { expect, it } from 'vitest';
import { fromPromises } from 'nest-redis-lock/testing';
import { now } from '../support/claims.js';
import { serviceOn } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';

it('a set that has waited for one lock has for the others what is left of its time, though the store owes their answers [G499]', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  let asked = 0;
  toy.acquire = (request) => (request.key === 'b' && asked++ > 0 ? new Promise(() => {}) : acquire.call(toy, request));
  toy.attemptTimeoutMs = () => 10_000;
  const [one, other] = [serviceOn(fromPromises(toy, now)), serviceOn(fromPromises(toy, now))];
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

it('a store that wakes those who wait, and keeps no places for them, does not show a lock as one that nobody waits for [G1065]', async () => {
  const waitersOf = async (keepsPlaces?: boolean) => {
    const nothing = () => {};
    const listening = { isListening: () => true, listen: nothing, checkListening: nothing, leave: nothing };
    const toy = Object.assign(new ToyBackend(now), { waitQueue: { handsOver: false, keepsPlaces, ...listening } });
    const locks = serviceOn(fromPromises(toy, now));
    const lock = await locks.acquire('key');
    const waiters = (await locks.inspect('key'))?.waitingProcesses;
    await lock.release();
    return waiters;
  };
  expect(await waitersOf()).toEqual([]);
  expect(await waitersOf(false)).toBeUndefined();
});

it('the events of a service end though its store fails to close, and the application hears of that failure', async () => {
  const failure = new Error('of the store');
  const toy = Object.assign(new ToyBackend(now), { close: () => Promise.reject(failure) });
  const locks = serviceOn(fromPromises(toy, now));
  let isComplete = false;
  locks.events$.subscribe({ complete: () => (isComplete = true) });
  await expect(locks.onApplicationShutdown()).rejects.toBe(failure);
  expect(isComplete).toBe(true);
  locks.onApplicationShutdown = async () => {}; // it has closed
});
