import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CHECK_MS, Checks, type Check } from '../../lib/core/waiting/checks.js';
import { openLocks } from '../support/open-locks.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

const MEASURED_MS = 3_000;

describe('the checks of a service', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const setUp = () => {
    const due: string[] = [];
    const checks = new Checks(() => performance.now());
    const check = (name: string): Check => ({ dueAt: 0, onDue: () => void due.push(name) });
    return { due, checks, check };
  };

  it('come due after their period, together with those that would be due soon after, and with one timer', async () => {
    const { due, checks, check } = setUp();
    for (const [name, afterMs] of [
      ['first', 0],
      ['soon after', 90],
      ['later', 20],
    ] as const) {
      await vi.advanceTimersByTimeAsync(afterMs);
      checks.add(check(name));
    }
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(CHECK_MS - 111);
    expect(due).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(due).toEqual(['first', 'soon after']);
    await vi.advanceTimersByTimeAsync(110);
    expect(due).toEqual(['first', 'soon after', 'later']);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('do not come due when they were removed, and later when they were added again', async () => {
    const { due, checks, check } = setUp();
    const [removed, again] = [check('removed'), check('added again')];
    for (const each of [removed, again]) checks.add(each);
    await vi.advanceTimersByTimeAsync(500);
    removed.list!.remove(removed);
    checks.add(again);
    await vi.advanceTimersByTimeAsync(CHECK_MS - 1);
    expect(due).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(due).toEqual(['added again']);
  });

  it('let the event loop go on between some hundred of them and the next', async () => {
    const { due, checks, check } = setUp();
    for (let index = 0; index < 2_000; index++) checks.add(check('one'));
    await vi.advanceTimersByTimeAsync(CHECK_MS);
    expect(due.length).toBeLessThanOrEqual(500);
    await vi.advanceTimersByTimeAsync(20);
    expect(due).toHaveLength(2_000);
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
  const begin = performance.now();
  await sleep(MEASURED_MS);
  const [calls, { zadd = 0 }] = [await scriptCalls(server), await server.calls()];
  const seconds = (performance.now() - begin) / 1_000;
  expect(calls / seconds).toBeLessThan(300);
  expect(zadd / 2 / seconds).toBeGreaterThan(7_000); // two for each check
  abort();
  await Promise.all(waits);
  await until(async () => (await server.command('DBSIZE')) === 10_000, { what: 'all places are left' });
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort('the test is over') };
}
