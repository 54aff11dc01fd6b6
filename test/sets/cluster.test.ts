import { beforeAll, expect, it } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { keysFor } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { clientOfCluster } from '../support/stage.js';
import { until } from '../support/until.js';
import { expectSound } from './random-sets.js';

/** A lock that nobody releases stays for longer than any test. */
const TTL_MS = 60_000;

let cluster: RedisCluster;
/** Of three slots, each of another master. */
let keys: string[];
beforeAll(async () => {
  cluster = await RedisCluster.start();
  keys = keysFor(cluster, 'part');
  return () => cluster.stop();
});

const openCluster = (options: RedisLockSettings = {}) =>
  openLocks({
    redis: () => clientOfCluster(cluster),
    ttlMs: TTL_MS,
    commandTimeoutMs: 20_000,
    ...options,
  });
const held = async () =>
  (await Promise.all(cluster.nodes.map((node) => node.keys('lock:{*}').catch(() => ['unknown'])))).map(
    ({ length }) => length,
  );

it('a set of keys in three slots of three masters is acquired, contended and released like any other [G394]', async () => {
  const services = [await openCluster(), await openCluster()];
  const set = await services[0]!.acquireAll(keys);
  expect(await held()).toEqual([1, 1, 1]);
  expect(await services[1]!.tryAcquireAll(keys)).toBeNull();
  expect(await set.release()).toBe(true);
  expect(await held()).toEqual([0, 0, 0]);
  await expectSound(services, keys, 10);
});

it('a master that hangs fails a set, and keeps none of its other locks from being given back [G395]', async () => {
  const locks = await openCluster({ commandTimeoutMs: 3_000 });
  const set = await locks.acquireAll(keys);
  const [, hangs] = cluster.nodes as [RedisServer, RedisServer, RedisServer];
  hangs.pause();
  try {
    const releasing = set.release();
    await until(async () => String(await heldBeside(1)) === '0,0', { what: 'the others are released' });
    expect(await releasing).toBe(false); // not confirmed by all
    await expect(locks.acquireAll(keys)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: keys[1] });
    await until(async () => String(await heldBeside(1)) === '0,0', { what: 'its lock is released' });
  } finally {
    hangs.resume();
  }
  await until(async () => String(await held()) === '0,0,0', { what: 'the release that failed was repeated' });
});

/** The number of locks on all masters except one. */
async function heldBeside(hanging: number): Promise<number[]> {
  const others = cluster.nodes.filter((_, index) => index !== hanging);
  return (await Promise.all(others.map((node) => node.keys('lock:{*}')))).map(({ length }) => length);
}
