import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { BackOff, pauseAfterTieMs } from '../../lib/core/locks/back-off.js';
import { CHECK_MS } from '../../lib/core/locks/line.js';
import { now } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { haveWaited, queued, untilQueued } from '../support/queue.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

it('a process that waits for 4 000 keys checks each of them every second, in at most 120 calls [G301]', async () => {
  const server = await redisServer();
  await loadScripts(server);
  const locks = await openLocks({ redis: server.url });
  const fill = `for index = 1, 4000 do redis.call('SET', 'lock:{' .. index .. '}', 'a person') end`;
  await server.command('EVAL', fill, 0);
  const { signal, abort } = abortable();
  const waits: Promise<unknown>[] = [];
  for (let index = 1; index <= 4_000; index++) {
    waits.push(locks.acquire(String(index), { waitMs: 600_000, signal }).catch(() => {}));
    if (index % 200 === 0) await sleep(20); // not all at once, so that they do not come due together
  }
  await until(async () => (await server.command('DBSIZE')) === 8_000, { what: 'each has its place' });

  await server.resetCalls();
  const checks = async () => ((await server.calls()).zadd ?? 0) / 2; // two for each
  await until(async () => (await checks()) > 10_000, { what: 'each was checked twice, at least' });
  expect((await scriptCalls(server)) / (await checks())).toBeLessThan(120 / 4_000);
  abort();
  await Promise.all(waits);
  await until(async () => (await server.command('DBSIZE')) === 4_000, { what: 'all places are left' });
});

it('10 000 fair calls that wait for one key cost a process at most 50 calls a second [G302]', async () => {
  const server = await redisServer();
  await loadScripts(server);
  const locks = await openLocks({ redis: server.url, fair: true, maxWaiters: 10_000 });
  await server.command('SET', 'lock:{key}', 'a person');
  await haveWaited(server, locks);
  const { signal, abort } = abortable();
  const waits = Array.from({ length: 10_000 }, () => locks.acquire('key', { waitMs: 600_000, signal }).catch(() => {}));
  await untilQueued(server, 'key', 1); // one place for all of them
  await server.resetCalls();
  const begin = performance.now();
  await sleep(5 * CHECK_MS);
  const seconds = (performance.now() - begin) / 1_000;
  expect((await scriptCalls(server)) / seconds).toBeLessThan(50);
  expect(((await server.calls()).zadd ?? 0) / 2).toBeGreaterThan(seconds / 2); // it is checked
  abort();
  await Promise.all(waits);
  await until(async () => (await server.command('DBSIZE')) === 2, { what: 'the place is left' });
});

/** Ten calls of one process wait, in order, for a lock of another process. */
const waitingTen = async () => {
  const server = await redisServer();
  const proxy = await proxyTo(server);
  const others = await openLocks({ redis: server.url, fair: true });
  const holder = await others.acquire('key');
  const locks = await openLocks({ redis: proxy.url, fair: true });
  await haveWaited(server, locks);
  const order: number[] = [];
  const calls = Array.from({ length: 10 }, (_, index) => locks.withLock('key', () => void order.push(index)));
  await untilQueued(server, 'key', 1);
  return { server, proxy, holder, order, calls };
};

it('the fair calls of a process whose place was lost get it back as soon as the process has noticed [G303]', async () => {
  const { server, holder, order, calls } = await waitingTen();
  await server.command('DEL', 'lock:{key}:queue');
  const isBack = async () => (await queued(server, 'key')) === 1;
  await until(isBack, { what: 'they have their place again', timeoutMs: 3 * CHECK_MS });
  await holder.release();
  await Promise.all(calls);
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort('the test is over') };
}

const LONG_MS = 60_000;
const many = <T>(make: () => T): T[] => Array.from({ length: 500 }, make);

describe('BackOff', () => {
  it('grows from some milliseconds to a quarter of a second, also where the key has no ttl, and never goes far past the end of a lease', () => {
    const backOff = new BackOff();
    const sleeps = many(() => backOff.next(Infinity));
    expect(sleeps[0]).toBeLessThanOrEqual(12);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(375);
    expect(Math.min(...sleeps.slice(20))).toBeGreaterThanOrEqual(125);
    expect(Math.max(...many(() => backOff.next(20)))).toBe(21);
  });

  it('waits a random number of round trips after a split vote', () => {
    const sleeps = many(() => pauseAfterTieMs(4));
    expect(Math.min(...sleeps)).toBeGreaterThanOrEqual(4);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(36);
    expect(new Set(sleeps).size).toBeGreaterThan(400);
  });

  it('comes due together with all others of its process once it has waited for some time, if one statement asks for all of them [G787]', () => {
    const dues = many(() => {
      const backOff = new BackOff(25);
      const pauses = Array.from({ length: 10 }, () => backOff.next(LONG_MS));
      expect(pauses[0]).toBeLessThanOrEqual(3);
      expect(Math.max(...pauses)).toBeLessThanOrEqual(37.5);
      return now() + backOff.next(LONG_MS);
    });
    // The clock advances a little between two readings of it.
    for (const dueAt of dues) expect(dueAt / 25).toBeCloseTo(Math.round(dueAt / 25), 1);
  });
});
