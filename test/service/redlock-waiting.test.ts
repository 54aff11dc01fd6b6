import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { RedlockWakes } from '../../lib/stores/redis/redlock/wakes.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { openLocks } from '../support/open-locks.js';
import { queued } from '../support/queue.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { keysOfLocks } from '../support/stored.js';

/** Who waits looks after a second: before that only a wake-up can have served it. */
const LOOKS_AFTER_MS = 1_000;

let nodes: RedlockNodes;
beforeAll(async () => {
  nodes = await RedlockNodes.start(5);
});
afterAll(() => nodes.stop());

/** The time limit of a node is for slow machines; nothing is measured by it. */
const open = (count = 3, settings: RedisLockSettings = {}) =>
  openLocks({ redlock: nodes.urls.slice(0, count), commandTimeoutMs: 3_000, ...settings });
const places = (key: string, count = 3) => Promise.all(nodes.servers.slice(0, count).map((each) => queued(each, key)));
/** On a majority of the nodes: it may have been granted the vote of one, and have given it back. */
const untilItWaits = (key: string, count = 3) =>
  until(async () => (await places(key, count)).filter((place) => place > 0).length > count / 2, {
    what: `a majority of the nodes knows who waits for "${key}"`,
  });
const untilNobodyWaits = (key: string) =>
  until(async () => (await places(key)).every((place) => place === 0), { what: `nobody waits for "${key}"` });

/** Who waits is served by the release: it had no time to look for itself. Five tries, since machines are slow at times. */
async function woken(locks: LockService, others: LockService, key: string, count?: number): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    const holder = await others.acquire(key);
    const waiting = locks.acquire(key);
    await untilItWaits(key, count);
    const from = performance.now();
    await holder.release();
    const lock = await waiting;
    times.push(performance.now() - from);
    expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
    await lock.release();
  }
  return times.filter((ms) => ms < LOOKS_AFTER_MS / 2).length;
}

describe('under Redlock, a lock that is released', () => {
  it('a released lock of a Redlock reaches a waiter without a look of its own [G125]', async () => {
    const [locks, others] = [await open(), await open()];
    expect(await woken(locks, others, 'woken')).toBeGreaterThanOrEqual(1);
    await untilNobodyWaits('woken');
  });

  it('is had in the same way while one of five nodes is dead', async () => {
    const [locks, others] = [await open(5), await open(5)];
    await nodes.kill(4);
    onTestFinished(() => nodes.restart());
    expect(await woken(locks, others, 'dead-node', 4)).toBeGreaterThanOrEqual(1);
  });

  it('costs a few calls on each node', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('calls');
    const waiting = locks.acquire('calls');
    await untilItWaits('calls');
    for (const server of nodes.servers) await server.resetCalls();
    await holder.release();
    await waiting;
    // One release and one attempt; another one where a wake-up came before the release of the other nodes.
    for (const server of nodes.servers.slice(0, 3)) expect(await scriptCalls(server)).toBeLessThanOrEqual(7);
  });

  it('is waited for at a few calls in a second', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('seldom');
    const warm = locks.acquire('seldom', { waitMs: 100 }).catch(() => {});
    await warm;
    await untilNobodyWaits('seldom');
    for (const server of nodes.servers) await server.resetCalls();
    await expect(locks.acquire('seldom', { waitMs: 1_500 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    for (const server of nodes.servers.slice(0, 3)) expect(await scriptCalls(server)).toBeLessThanOrEqual(6);
    await untilNobodyWaits('seldom');
  });
});

describe('under Redlock, those who wait', () => {
  it('and begin at the same moment settle a split vote for each of 20 keys', async () => {
    const services = await Promise.all(Array.from({ length: 3 }, () => open()));
    const keys = Array.from({ length: 20 }, (_, index) => `split ${index}`);
    const served: string[] = [];
    const calls = keys.flatMap((key) =>
      services.map((locks) => locks.withLock(key, { waitMs: 60_000 }, () => void served.push(key))),
    );
    await Promise.all(calls);
    expect(served.sort()).toEqual(keys.flatMap((key) => [key, key, key]).sort());
    for (const key of keys) await untilNobodyWaits(key);
  });

  it('and give up leave the queue of every node', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('gives-up');
    const controller = new AbortController();
    const aborted = locks.acquire('gives-up', { signal: controller.signal });
    await untilItWaits('gives-up');
    controller.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    await untilNobodyWaits('gives-up');
    expect(locks.size).toBe(0);
  });

  it('and are served leave the queue of a node, too, that refused them', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('refused');
    const waiting = locks.acquire('refused');
    await untilItWaits('refused');
    await nodes.put(2, 'refused', 'somebody');
    await holder.release();
    const lock = await waiting;
    expect(await nodes.owner(2, 'refused')).toBe('somebody');
    await untilNobodyWaits('refused');
    expect(lock.isHeld).toBe(true);
    await nodes.drop(2, 'refused');
    await lock.release();
  });

  it('are told again when the subscriptions of all nodes were cut', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('cut');
    const waiting = locks.acquire('cut', { waitMs: 60_000 });
    await untilItWaits('cut');
    await Promise.all(nodes.servers.map((server) => server.command('CLIENT', 'KILL', 'TYPE', 'pubsub')));
    await holder.release();
    expect((await waiting).isHeld).toBe(true);
  });
});

describe('who is woken', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const wakesOf = (quorum: number) => {
    const woken: string[] = [];
    const onTurn = (ticket?: string) => void woken.push(ticket!);
    const listener = { onTurn, onListening: () => {}, onTaken: () => {}, onWarning: () => {} };
    return { woken, wakes: new RedlockWakes(quorum, listener) };
  };

  it('by a majority tries at once, and once', () => {
    const { woken, wakes } = wakesOf(2);
    wakes.onTurn('a');
    wakes.onTurn('b');
    expect(woken).toEqual([]);
    wakes.onTurn('a');
    expect(woken).toEqual(['a']);
    wakes.onTurn('b');
    vi.advanceTimersByTime(1_000);
    expect(woken).toEqual(['a', 'b']);
  });

  it('by fewer tries a moment later, and again when it is woken again', () => {
    const { woken, wakes } = wakesOf(3);
    for (const count of [1, 2]) {
      wakes.onTurn('a');
      wakes.onTurn('a');
      expect(woken).toHaveLength(count - 1);
      vi.advanceTimersByTime(8);
      expect(woken).toHaveLength(count);
    }
  });

  it('is not any more when the service has closed', () => {
    const { woken, wakes } = wakesOf(2);
    wakes.onTurn('a');
    wakes.close();
    vi.advanceTimersByTime(1_000);
    expect(woken).toEqual([]);
  });
});

it('the nodes of a Redlock keep nothing but fencing counters and what they are to remember of themselves', async () => {
  const left = () => Promise.all(nodes.servers.map((server) => keysOfLocks(server)));
  await until(async () => (await left()).flat().length === 0, { what: 'no lock and no queue is left' });
});
