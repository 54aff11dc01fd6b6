import { getEventListeners } from 'node:events';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { GRANT_TTL_MS } from '../../lib/stores/node/messages.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const isFree = async (key: string): Promise<boolean> => (await server.keys(`lock:{${key}}`)).length === 0;
const waiters = async (locks: LockService, key: string) => (await locks.inspect(key))?.waiters ?? 0;

describe('calls of one process that want the same lock', () => {
  it('the calls of one process that want the same lock get it in the order of their calls [G110]', async () => {
    const locks = await open();
    const order: number[] = [];
    const calls = Array.from({ length: 50 }, (_, index) => locks.withLock('fifo', () => order.push(index)));
    await Promise.all(calls);
    expect(order).toEqual(Array.from({ length: 50 }, (_, index) => index));
  });

  it('the calls of one process that want the same lock cost Redis one bid, be they 1 000 [G111]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('thousand');
    await server.resetCalls();
    const calls = Array.from({ length: 1_000 }, () => locks.acquire('thousand', { waitMs: 60_000 }));
    await until(async () => (await waiters(locks, 'thousand')) === 1_000, { what: 'all wait' });
    await until(async () => (await scriptCalls(server)) > 5, { what: 'the bid has asked again' });
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

  it('cost two Redis calls for a grant, and are passed the lock without any for as long as it lasts', async () => {
    const locks = await openLocks({ redis: server.url, cohortMs: 60_000 });
    await locks.withLock('warm', () => {});
    await locks.withLock('warm', () => {});
    await server.resetCalls();
    await Promise.all(Array.from({ length: 100 }, () => locks.withLock('hundred', () => {})));
    // The first asks for itself alone; then it is given back and asked for again, for all who wait by then, in one call.
    expect(await scriptCalls(server)).toBe(3);
  });

  it('have what the first extension says also if the lock was passed on before that was answered [G628]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('passed on soon');
    const calls = [locks.acquire('passed on soon'), locks.acquire('passed on soon')];
    await untilQueued(server, 'passed on soon', 1);
    await holder.release();
    const first = await calls[0]!;
    await first.release(); // in the tick in which it began
    const second = await calls[1]!;
    expect(second.owner).toBe(first.owner);
    await new Promise((resolve) => setTimeout(resolve, 1.5 * GRANT_TTL_MS)); // longer than it was handed over for
    expect(second.isHeld).toBe(true);
    expect(await second.release()).toBe(true);
  });

  it('each give up at the end of their own waitMs, and say who holds it in this process', async () => {
    const locks = await open();
    const holder = await locks.acquire('own-wait', { ttlMs: 60_000 });
    const order: string[] = [];
    const waits = [300, 100, 200].map((waitMs) =>
      locks.acquire('own-wait', { waitMs }).catch((error: unknown) => {
        order.push(`${waitMs}`);
        return error;
      }),
    );
    const errors = await Promise.all(waits);
    expect(order).toEqual(['100', '200', '300']);
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'LOCK_CONTENDED', holder: { owner: holder.owner, pid: process.pid } });
    }
    expect(await waiters(locks, 'own-wait')).toBe(0);
  });

  it('say who holds it elsewhere, also those who did not ask Redis themselves', async () => {
    const [locks, others] = [await open(), await open()];
    const { owner } = await others.acquire('elsewhere', { ttlMs: 60_000 });
    const waits = [1, 2, 3, 4].map(() => locks.acquire('elsewhere', { waitMs: 600 }).catch((error: unknown) => error));
    for (const error of await Promise.all(waits)) {
      expect(error).toMatchObject({ code: 'LOCK_CONTENDED', holder: { owner, pid: process.pid } });
    }
  });
});

it('who waits in vain is told who holds the lock, whatever was under way when the time was over', async () => {
  const [locks, others] = [await open(), await open()];
  const keys = Array.from({ length: 100 }, (_, index) => `in-vain ${index}`);
  const held = await Promise.all(keys.map((key) => others.acquire(key)));
  const waits = keys.map((key, index) => locks.acquire(key, { waitMs: 500 + (index % 50) }));
  const outcomes = await Promise.allSettled(waits);
  expect(outcomes).toEqual(
    held.map(({ key, owner }) => ({
      status: 'rejected',
      reason: expect.objectContaining({ code: 'LOCK_CONTENDED', key, holder: expect.objectContaining({ owner }) }),
    })),
  );
});

describe('the signal of a call', () => {
  const reason = new Error('the caller has gone');

  it('that is aborted before ends it at once, without a command', async () => {
    const locks = await open();
    await locks.isLocked('before');
    await server.resetCalls();
    const acquiring = locks.acquire('before', { signal: AbortSignal.abort(reason) });
    await expect(acquiring).rejects.toBe(reason);
    await locks.isLocked('before'); // a command that had been sent would have come before this one
    expect(await scriptCalls(server)).toBe(1);
  });

  it('ends its wait in the local queue, and those behind it move up', async () => {
    const locks = await open();
    const holder = await locks.acquire('queued');
    const controller = new AbortController();
    const aborted = locks.acquire('queued', { signal: controller.signal });
    const behind = locks.acquire('queued');
    await until(async () => (await waiters(locks, 'queued')) === 2, { what: 'both wait' });
    controller.abort(reason);
    await expect(aborted).rejects.toBe(reason);
    expect(await waiters(locks, 'queued')).toBe(1);
    await holder.release();
    expect((await behind).isHeld).toBe(true);
  });

  it('that aborts just when the lock was given to the call leaves it to the next one', async () => {
    const locks = await open();
    const holder = await locks.acquire('just-then');
    const controller = new AbortController();
    const aborted = locks.acquire('just-then', { signal: controller.signal });
    const behind = locks.acquire('just-then');
    await until(async () => (await waiters(locks, 'just-then')) === 2, { what: 'both wait' });
    void holder.release();
    controller.abort(reason);
    await expect(aborted).rejects.toBe(reason);
    expect((await behind).isHeld).toBe(true);
  });

  it('ends its wait while another process holds the lock, and the next one contends', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('contended');
    const controller = new AbortController();
    const aborted = locks.acquire('contended', { signal: controller.signal });
    const behind = locks.acquire('contended');
    await until(async () => (await waiters(locks, 'contended')) === 2, { what: 'both wait' });
    controller.abort(reason);
    await expect(aborted).rejects.toBe(reason);
    await holder.release();
    expect((await behind).isHeld).toBe(true);
  });

  it('the signal of a call ends its wait while Redis does not answer, and its attempt leaves no orphan [G128]', async () => {
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const locks = await openLocks({ redis: proxy.url });
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

  it('that lives long keeps no listeners', async () => {
    const [locks, others] = [await open(), await open()];
    const { signal } = new AbortController();
    const held = await locks.acquire('listeners', { signal });
    const waits = [50, 20_000].map((waitMs) => locks.acquire('listeners', { signal, waitMs }));
    await expect(waits[0]).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    await held.release();
    await (await waits[1])!.release();
    const other = await others.acquire('listeners');
    await expect(locks.acquire('listeners', { signal, waitMs: 500 })).rejects.toThrow('held by');
    await other.release();
    await locks.withLock('listeners', { signal }, () => {});
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('may be shared by any number of calls, of which Node does not warn', async () => {
    const [locks, warnings] = [await open(), [] as Error[]];
    const warned = (warning: Error) => warnings.push(warning);
    process.on('warning', warned);
    onTestFinished(() => void process.off('warning', warned));
    const holder = await locks.acquire('shared');
    const controller = new AbortController();
    const calls = Array.from({ length: 50 }, () => locks.acquire('shared', { signal: controller.signal }));
    const settled = Promise.allSettled(calls);
    await until(async () => (await waiters(locks, 'shared')) === 50, { what: 'all wait' });
    controller.abort(reason);
    expect(await settled).toEqual(calls.map(() => ({ status: 'rejected', reason })));
    expect(warnings).toEqual([]);
    await holder.release();
  });

  it('does not end a lock that is held', async () => {
    const locks = await open();
    const controller = new AbortController();
    const lock = await locks.acquire('is-held', { signal: controller.signal });
    controller.abort();
    expect(lock.isHeld).toBe(true);
    expect(lock.signal.aborted).toBe(false);
  });

  it('that aborts at any moment never loses the turn of those behind', async () => {
    const locks = await open();
    const outcomes = Array.from({ length: 200 }, async (_, index) => {
      const controller = new AbortController();
      setTimeout(() => controller.abort(reason), index % 17);
      try {
        await locks.withLock('any-moment', { signal: controller.signal }, () => {});
        return 'served';
      } catch (error) {
        return error === reason ? 'aborted' : error;
      }
    });
    const settled = await Promise.all(outcomes);
    expect(settled.filter((outcome) => outcome !== 'served' && outcome !== 'aborted')).toEqual([]);
    expect((await locks.acquire('any-moment')).isHeld).toBe(true);
  });
});

describe('a lock whose holder', () => {
  it('a lock whose holder has died is had right after its ttl [G12]', async () => {
    const proxy = await TcpProxy.start(server.port);
    const holder = await openLocks({ redis: proxy.url, ttlMs: 1_200 });
    await holder.acquire('crashed');
    const locks = await open();
    const waiting = locks.acquire('crashed', { waitMs: 20_000 });
    await proxy.stop(); // to Redis, and to who waits, that is all there is to see of a death
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

  it('has a key without ttl, written by hand, is waited for without asking all the time', async () => {
    const locks = await open();
    await server.command('SET', 'lock:{by-hand}', 'a person');
    await server.resetCalls();
    const error = await locks.acquire('by-hand', { waitMs: 800 }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'LOCK_CONTENDED', holder: { owner: 'a person' }, remainingMs: Infinity });
    expect(String(error)).toContain('its lease runs without end');
    expect(await scriptCalls(server)).toBeLessThan(20);
  });
});
