import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Pacer, type Paced } from '../../lib/core/time/pacer.js';
import { CHECK_MS } from '../../lib/core/waiting/bid.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued, untilSubscribers } from '../support/queue.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { proxyTo, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

interface Item extends Paced<Item> {
  name: string;
}

describe('what comes due in its time', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const setUp = () => {
    const due: string[] = [];
    const now = () => performance.now();
    const pacer = new Pacer<Item>({
      now,
      atOnce: 500,
      leewayMs: () => 100,
      isUrgent: ({ name }) => name === 'urgent',
      onDue: (item) => {
        pacer.remove(item);
        due.push(item.name);
      },
    });
    const itemOf = (name: string): Item => ({ name, dueAt: 0 });
    const add = (item: Item, periodMs = 1_000) => pacer.add(item, now() + periodMs, periodMs);
    return { due, pacer, itemOf, add };
  };

  it('comes due after its period, together with what would be due soon after, and with one timer', async () => {
    const { due, itemOf, add } = setUp();
    for (const [name, afterMs] of [
      ['first', 0],
      ['soon after', 90],
      ['later', 20],
    ] as const) {
      await vi.advanceTimersByTimeAsync(afterMs);
      add(itemOf(name));
    }
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(1_000 - 111);
    expect(due).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(due).toEqual(['first', 'soon after']);
    await vi.advanceTimersByTimeAsync(110);
    expect(due).toEqual(['first', 'soon after', 'later']);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('does not come due when it was removed, and later when it was added again', async () => {
    const { due, pacer, itemOf, add } = setUp();
    const [removed, again] = [itemOf('removed'), itemOf('added again')];
    for (const each of [removed, again]) add(each);
    await vi.advanceTimersByTimeAsync(500);
    pacer.remove(removed);
    add(again);
    await vi.advanceTimersByTimeAsync(1_000 - 1);
    expect(due).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(due).toEqual(['added again']);
  });

  it('lets the event loop go on between some hundred items and the next', async () => {
    const { due, itemOf, add } = setUp();
    for (let index = 0; index < 2_000; index++) add(itemOf('one'));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(due.length).toBeLessThanOrEqual(500);
    await vi.advanceTimersByTimeAsync(20);
    expect(due).toHaveLength(2_000);
  });

  it('comes first, and at its time, if it is urgent, whatever else is due and has to wait', async () => {
    const { due, pacer, itemOf, add } = setUp();
    for (let index = 0; index < 1_000; index++) add(itemOf('one'));
    pacer.add(itemOf('urgent'), performance.now() + 1_001);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(due.indexOf('urgent')).toBe(-1);
    await vi.advanceTimersByTimeAsync(1);
    expect(due.indexOf('urgent')).toBeGreaterThan(-1);
  });

  it('comes due at once, and in order, when it is hurried, and not if the one before has removed it', () => {
    const { due, pacer, itemOf, add } = setUp();
    const items = ['first', 'second', 'third'].map(itemOf);
    for (const item of items) add(item);
    const [, second] = items;
    const push = due.push.bind(due);
    due.push = (name) => {
      if (name === 'first') pacer.remove(second!);
      return push(name);
    };
    pacer.hurry(items);
    expect([...due]).toEqual(['first', 'third']);
    expect(pacer.size).toBe(0);
  });

  it('comes due also out of the order of its period', async () => {
    const { due, pacer, itemOf } = setUp();
    const now = performance.now();
    pacer.add(itemOf('later'), now + 3_000, 3_000);
    pacer.add(itemOf('earlier'), now + 1_000, 3_000);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(due).toEqual(['earlier']);
    pacer.stop();
  });
});

it('a process that waits for 10 000 keys looks after each of them every second, in at most 300 calls [G301]', async () => {
  const server = await redisServer();
  await loadScripts(server);
  const locks = await openLocks({ redis: server.url });
  const fill = `for index = 1, 10000 do redis.call('SET', 'lock:{' .. index .. '}', 'a person') end`;
  await server.command('EVAL', fill, 0);
  const { signal, abort } = abortable();
  const waits: Promise<unknown>[] = [];
  for (let index = 1; index <= 10_000; index++) {
    waits.push(locks.acquire(String(index), { waitMs: 600_000, signal }).catch(() => {}));
    if (index % 500 === 0) await sleep(20); // not all at once, so that they are not due together either
  }
  await until(async () => (await server.command('DBSIZE')) === 20_000, { what: 'each has its place' });

  await server.resetCalls();
  const checks = async () => ((await server.calls()).zadd ?? 0) / 2; // two for each
  await until(async () => (await checks()) > 25_000, { what: 'each was checked twice, at least' });
  expect((await scriptCalls(server)) / (await checks())).toBeLessThan(300 / 10_000);
  abort();
  await Promise.all(waits);
  await until(async () => (await server.command('DBSIZE')) === 10_000, { what: 'all places are left' });
});

it('10 000 fair calls that wait for one key cost a process at most 50 calls a second [G302]', async () => {
  const server = await redisServer();
  await loadScripts(server);
  const locks = await openLocks({ redis: server.url, fair: true, maxWaiters: 10_000 });
  await server.command('MSET', 'lock:{key}', 'a person', 'lock:{before}', 'a person');
  const earlier = locks.acquire('before');
  await untilSubscribers(server, 1);
  await server.command('DEL', 'lock:{before}');
  await (await earlier).release();
  const { signal, abort } = abortable();
  const waits = Array.from({ length: 10_000 }, () => locks.acquire('key', { waitMs: 600_000, signal }).catch(() => {}));
  await untilQueued(server, 'key', 1); // one place for all
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

describe('the fair calls of a process', () => {
  /** Ten calls of one process wait, in their order, for a lock that another has. */
  const waitingTen = async () => {
    const server = await redisServer();
    const proxy = await proxyTo(server);
    const others = await openLocks({ redis: server.url, fair: true });
    const holder = await others.acquire('key');
    const locks = await openLocks({ redis: proxy.url, fair: true });
    // It listens already.
    const before = await others.acquire('before');
    const earlier = locks.acquire('before');
    await untilSubscribers(server, 1);
    await before.release();
    await (await earlier).release();
    const order: number[] = [];
    const calls = Array.from({ length: 10 }, (_, index) => locks.withLock('key', () => void order.push(index)));
    await untilQueued(server, 'key', 1);
    return { server, proxy, holder, order, calls };
  };

  it('the fair calls of a process whose place was lost have it again as soon as that has noticed [G303]', async () => {
    const { server, holder, order, calls } = await waitingTen();
    await server.command('DEL', 'lock:{key}:queue');
    const isBack = async () => (await queued(server, 'key')) === 1;
    await until(isBack, { what: 'they have their place again', timeoutMs: 3 * CHECK_MS });
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('are served soon when all were passed over, as their subscription was dead', async () => {
    const { server, proxy, holder, order, calls } = await waitingTen();
    proxy.hideCloses();
    await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await untilSubscribers(server, 0);
    const begin = performance.now();
    await holder.release();
    await Promise.all(calls);
    expect(order[0]).toBe(0);
    expect(performance.now() - begin).toBeLessThan(5 * CHECK_MS);
  });
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort('the test is over') };
}
