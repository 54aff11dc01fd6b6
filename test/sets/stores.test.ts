import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from '../../lib/compose/redis-lock-options.js';
import type { LockService } from '../../lib/core/service/lock.service.js';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { randomOf } from '../support/random.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { until } from '../support/until.js';

/** A lock that nobody gives back stays for longer than any test. */
const TTL_MS = 60_000;

const open = (options: RedisLockModuleOptions) => openLocks({ ttlMs: TTL_MS, ...options });

/** Has callers of all services take random sets of a few keys; every fourth does not wait. */
async function takeRandomSets(services: readonly LockService[], keys: readonly string[], count: number) {
  const random = randomOf(5);
  const holders = new Map<string, number>();
  const refusals: string[] = [];
  let asked = 0;
  let most = 0;
  let served = 0;
  const take = async (locks: LockService) => {
    const some = [...keys].sort(() => random() - 0.5).slice(0, 2);
    const waitMs = asked++ % 4 === 0 ? 0 : 10_000;
    const work = async () => {
      for (const key of some) {
        holders.set(key, (holders.get(key) ?? 0) + 1);
        most = Math.max(most, holders.get(key)!);
      }
      await new Promise(setImmediate);
      for (const key of some) holders.set(key, holders.get(key)! - 1);
      served++;
    };
    await locks.withLock(some, { waitMs }, work).catch(({ code }: { code: string }) => refusals.push(code));
  };
  const caller = async (locks: LockService) => {
    for (let turn = 0; turn < count; turn++) await take(locks);
  };
  await Promise.all(services.flatMap((locks) => [caller(locks), caller(locks), caller(locks)]));
  return { most, served, refusals, asked };
}

async function expectSound(services: readonly LockService[], keys: readonly string[], count: number): Promise<void> {
  const { most, served, refusals, asked } = await takeRandomSets(services, keys, count);
  expect(most).toBe(1);
  expect(asked).toBe(3 * count * services.length);
  expect(served + refusals.length).toBe(asked);
  expect(refusals.length).toBeLessThanOrEqual(asked / 4 + 1);
  expect(refusals.filter((code) => code !== 'LOCK_CONTENDED')).toEqual([]);
  for (const locks of services) {
    await until(() => locks.size === 0, { what: 'nothing is held any more' });
    await (await locks.acquireAll(keys)).release();
  }
}

describe('in memory', () => {
  it('random sets in the memory of a process exclude each other by key, and all end', async () => {
    await expectSound([await open({ memory: true })], [...'abc'], 30);
  });
});

describe('on one Redis, fair', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await RedisServer.start();
  });
  afterAll(() => server.stop());
  const openFair = () => open({ redis: server.url, fair: true });

  it('random sets of fair services exclude each other by key, and all end', async () => {
    await expectSound([await openFair(), await openFair()], [...'abc'], 15);
  });

  it('with fair: true sets and single locks that wait for one key are served in the order in which they came', async () => {
    const services = [await openFair(), await openFair()];
    const holder = await services[0]!.acquire('order');
    const served: number[] = [];
    const calls: Promise<unknown>[] = [];
    for (let index = 0; index < 9; index++) {
      const keys = index % 3 === 2 ? 'order' : ['order', 'order:2'];
      calls.push(services[index % 2]!.withLock(keys as string[], () => served.push(index)));
      await untilQueued(server, 'order', index + 1);
    }
    await holder.release();
    await Promise.all(calls);
    expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });
});

describe('in a Cluster', () => {
  let cluster: RedisCluster;
  /** Of three slots, each of another master. */
  const keys = [0, 1, 2].map((master) => {
    for (let number = 0; ; number++) {
      const key = `part:${number}`;
      if (Math.floor((clusterSlot(`lock:{${key}}`) * 3) / 16_384) === master) return key;
    }
  });
  beforeAll(async () => {
    cluster = await RedisCluster.start(3);
  });
  afterAll(() => cluster.stop());

  const openCluster = () =>
    open({
      redis: () => new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }))),
      commandTimeoutMs: 500,
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
    const locks = await openCluster();
    const set = await locks.acquireAll(keys);
    const [, hangs] = cluster.nodes as [RedisServer, RedisServer, RedisServer];
    hangs.pause();
    try {
      const releasing = set.release();
      await until(async () => String(await heldBeside(1)) === '0,0', { what: 'the others are released' });
      expect(await releasing).toBe(false); // not confirmed by all
      await expect(locks.acquireAll(keys)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: keys[1] });
      await until(async () => String(await heldBeside(1)) === '0,0', { what: 'what it acquired is given back' });
    } finally {
      hangs.resume();
    }
    await until(async () => String(await held()) === '0,0,0', { what: 'the release that failed was repeated' });
  });

  /** How many locks the masters but one have. */
  async function heldBeside(hanging: number): Promise<number[]> {
    const others = cluster.nodes.filter((_, index) => index !== hanging);
    return (await Promise.all(others.map((node) => node.keys('lock:{*}')))).map(({ length }) => length);
  }
});

describe('on a Redlock', () => {
  let nodes: RedlockNodes;
  beforeAll(async () => {
    nodes = await RedlockNodes.start(3);
  });
  afterAll(() => nodes.stop());

  it('random sets of a Redlock exclude each other by key and all end, although a node is down [G396]', async () => {
    const openRedlock = () => open({ redlock: nodes.urls, commandTimeoutMs: 1_000 });
    const services = [await openRedlock(), await openRedlock()];
    await nodes.kill(2);
    onTestFinished(() => nodes.restart()); // closing would wait for it
    await expectSound(services, [...'abc'], 4);
  });
});
