import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { openLocks } from '../support/open-locks.js';
import { queued } from '../support/queue.js';
import { until } from '../support/until.js';

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
});
