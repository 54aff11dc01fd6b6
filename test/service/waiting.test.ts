import { getEventListeners } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { LockService, LockUnavailableError } from 'nest-redis-lock';
import { type AcquireRequest, fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from '../contract/toy-backend.js';
import { now } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { serviceOn } from '../support/open-locks.js';
import { scriptCalls } from '../support/script-calls.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, isFree, untilQueued } = await sceneOfFile();

const waiters = async (locks: LockService, key: string) => (await locks.inspect(key))?.waiters ?? 0;

it('the calls of one process that want the same lock get it in the order of their calls [G110]', async () => {
  const locks = await open();
  const order: number[] = [];
  const calls = Array.from({ length: 50 }, (_, index) => locks.withLock('fifo', () => order.push(index)));
  await Promise.all(calls);
  expect(order).toEqual(Array.from({ length: 50 }, (_, index) => index));
});

it('the calls of one process that want the same lock cost Redis as much as one call, even 1 000 of them [G111]', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await others.acquire('thousand');
  await server.resetCalls();
  const calls = Array.from({ length: 1_000 }, () => locks.acquire('thousand', { waitMs: 60_000 }));
  await until(async () => (await waiters(locks, 'thousand')) === 1_000, { what: 'all wait' });
  await until(async () => (await scriptCalls(server)) > 5, { what: 'their queue has asked again' });
  const asked = (await scriptCalls(server)) - 1;
  expect(asked).toBeLessThan(50);
  await holder.release();
  let held = 0;
  for (const call of calls) {
    await (await call).release();
    held++;
  }
  expect(held).toBe(1_000);
});

it('the calls of one process that want the same lock get the answer of the first extension even if the lock was passed on before it came [G628]', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await others.acquire('passed on soon');
  const calls = [locks.acquire('passed on soon'), locks.acquire('passed on soon')];
  await untilQueued('passed on soon');
  await holder.release();
  const first = await calls[0]!;
  await first.release(); // in the tick in which it began
  const second = await calls[1]!;
  expect(second.owner).toBe(first.owner);
  await new Promise((resolve) => setTimeout(resolve, 3_000)); // longer than the time of the hand-over
  expect(second.isHeld).toBe(true);
  expect(await second.release()).toBe(true);
});

describe('the signal of a call', () => {
  const reason = new Error('the caller has gone');

  it.each(['here', 'elsewhere'])(
    'ends its wait while the lock is held %s, even just when the call gets the lock: the next call has it then',
    async (where) => {
      const [locks, others] = [await open(), await open()];
      for (const isJustThen of [false, true]) {
        const holder = await (where === 'here' ? locks : others).acquire('ends');
        const controller = new AbortController();
        const aborted = locks.acquire('ends', { signal: controller.signal });
        const behind = locks.acquire('ends');
        await until(async () => (await waiters(locks, 'ends')) === 2, { what: 'both wait' });
        if (isJustThen) void holder.release();
        controller.abort(reason);
        await expect(aborted).rejects.toBe(reason);
        await holder.release();
        const lock = await behind;
        expect(lock.isHeld).toBe(true);
        await lock.release();
      }
    },
  );

  it('leaves the lock that was requested for it to the next call, unless that call wants another ttl', async () => {
    const { proxy, locks } = await openBehindProxy();
    await locks.isLocked('otherwise'); // it is connected
    for (const [ttlMs, cost] of [
      [30_000, 1],
      [5_000, 2],
    ] as const) {
      const controller = new AbortController();
      proxy.hold();
      const aborted = locks.acquire('otherwise', { signal: controller.signal });
      const next = locks.acquire('otherwise', { ttlMs });
      controller.abort(reason);
      await expect(aborted).rejects.toBe(reason);
      await server.resetCalls();
      proxy.release();
      const lock = await next;
      expect(await scriptCalls(server)).toBe(cost); // released and requested again in one step
      expect(Math.abs(lock.remainingMs - ttlMs)).toBeLessThan(400);
      await lock.release();
    }
  });

  it('does not end a lock that is held, keeps no listener, and may be shared by any number of calls without a warning', async () => {
    const locks = await open();
    const warnings: Error[] = [];
    const warned = (warning: Error) => warnings.push(warning);
    process.on('warning', warned);
    onTestFinished(() => void process.off('warning', warned));
    const controller = new AbortController();
    const { signal } = controller;
    const held = await locks.acquire('shared', { signal });
    await expect(locks.acquire('shared', { signal, waitMs: 50 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    const calls = Promise.allSettled(Array.from({ length: 50 }, () => locks.acquire('shared', { signal })));
    await until(async () => (await waiters(locks, 'shared')) === 50, { what: 'all wait' });
    controller.abort(reason);
    expect(await calls).toEqual(Array(50).fill({ status: 'rejected', reason }));
    expect([held.isHeld, held.signal.aborted, warnings]).toEqual([true, false, []]);
    await held.release();
  });

  it('the signal of a call ends its wait while Redis does not answer, and its attempt leaves no orphan [G128]', async () => {
    const { proxy, locks } = await openBehindProxy();
    proxy.hold();
    const controller = new AbortController();
    const aborted = locks.acquire('hangs', { signal: controller.signal });
    const behind = locks.acquire('hangs');
    setTimeout(() => controller.abort(reason), 20);
    await expect(aborted).rejects.toBe(reason);
    proxy.release();
    expect(await (await behind).release()).toBe(true);
    expect(await isFree('hangs')).toBe(true);
    expect(locks.size).toBe(0);
  });
});

/** A store that does not answer attempts until its gate is open. */
class OwingStore extends ToyBackend {
  readonly gate = new Gate();
  readonly asked: AcquireRequest[] = [];

  override attemptTimeoutMs() {
    return 60_000;
  }

  override async acquire(request: AcquireRequest) {
    this.asked.push(request);
    await this.gate.opened;
    return super.acquire(request);
  }
}

describe('a store that owes an answer', () => {
  /** The error of each call, and the time of its refusal. */
  const refusalsOf = (calls: Promise<unknown>[]) => {
    const from = now();
    const refusal = (call: Promise<unknown>) =>
      call.then(
        () => expect.unreachable('it was granted'),
        (error: LockUnavailableError) => ({ afterMs: now() - from, problem: error.causes[0]!.problem }),
      );
    return Promise.all(calls.map(refusal));
  };

  it('refuses a call that asks at once when its waitMs has passed, though the store still owes the answer, which comes too late [G520]', async () => {
    const store = new OwingStore(now, 0);
    const locks = serviceOn(fromPromises(store, now, 60_000));
    const [refusal] = await refusalsOf([locks.acquire('owed', { waitMs: 10_000 })]);
    expect(refusal!.problem).toMatch(/^no answer for \d+ ms, and waitMs has passed$/);
    expect(refusal!.afterMs).toBeGreaterThan(9_990);
    expect(refusal!.afterMs).toBeLessThan(10_050);
    expect(store.asked.map(({ asker }) => asker?.isWanted)).toEqual([false]);
    store.gate.open();
    await until(() => locks.size === 0, { what: 'the late grant is given back' });
    expect(await locks.isLocked('owed')).toBe(false);
  });

  it('refuses a call that tries once when the time of an attempt has passed, though the store still owes the answer [G521]', async () => {
    const store = new OwingStore(now, 0);
    const backend = Object.assign(fromPromises(store, now, 60_000), { attemptTimeoutMs: () => 1_000 });
    const locks = serviceOn(backend);
    // The second waits for the same attempt.
    for (const { problem, afterMs } of await refusalsOf([locks.tryAcquire('owed'), locks.tryAcquire('owed')])) {
      expect(problem).toMatch(/^no answer for \d+ ms$/);
      expect(afterMs).toBeGreaterThan(990);
      expect(afterMs).toBeLessThan(1_050);
    }
    expect(store.asked.map(({ asker }) => asker?.isWanted)).toEqual([false]);
    store.gate.open(); // otherwise the application would wait for the answer when it closes
  });
});

it('a lock whose holder has died can be acquired right after its ttl [G12]', async () => {
  const { proxy, locks: holder } = await openBehindProxy({ ttlMs: 1_200 });
  await holder.acquire('crashed');
  const locks = await open();
  const waiting = locks.acquire('crashed', { waitMs: 20_000 });
  await proxy.stop(); // for Redis and for waiting calls, this is the same as death
  const askedAt = performance.now();
  const remainingMs = (await server.command('PTTL', 'lock:{crashed}')) as number;
  const answeredAt = performance.now();
  const lock = await waiting;
  const hadAt = performance.now();
  expect(lock.isHeld).toBe(true);
  expect(remainingMs).toBeGreaterThan(0);
  expect(hadAt).toBeGreaterThan(askedAt + remainingMs - 20); // Redis reads its clock once for commands that come together
  expect(hadAt).toBeLessThan(answeredAt + remainingMs + 500);
});
