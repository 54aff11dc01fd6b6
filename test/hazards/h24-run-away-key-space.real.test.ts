import { describe, expect, it } from 'vitest';
import { bytesLeftBy } from '../support/heap.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { tryLock, unlock } from '../support/naive.js';
import { clientOf, redisServer, redisServers } from '../support/stage.js';
import { COUNTER, isCounter } from '../support/stored.js';

const COUNT = 1_000;
/** The counters of a node of a Redlock. */
const SHARDS = 4_096;

/** Calls `work` once for each of many keys, which are never used again. */
async function forManyKeys(name: string, count: number, work: (key: string) => Promise<unknown>): Promise<void> {
  for (let start = 0; start < count; start += 500) {
    const keys = Array.from({ length: 500 }, (_, index) => `${name} ${start + index} ${'x'.repeat(200)}`);
    await Promise.all(keys.map(work));
  }
}

async function memoryOf(server: RedisServer): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(String(await server.command('INFO', 'memory')))?.[1]);
}

/** Lets every ttl pass, and removes no other key. */
async function endAllTtls(server: RedisServer): Promise<void> {
  const script = `for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('PTTL', key) >= 0 then redis.call('PEXPIRE', key, 1) end
  end`;
  await server.command('EVAL', script, 0);
}

describe('H24: many different keys are locked, once each', () => {
  it('a naive lock with a queue for each key, and a counter without a ttl, keeps both forever', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const queues = new Map<string, Promise<unknown>>();
    const withNaiveLock = (key: string) => {
      const turn = (queues.get(key) ?? Promise.resolve()).then(async () => {
        await tryLock(redis, key, 'A', 60_000);
        await redis.incr(`${key}:fence`);
        await unlock(redis, key, 'A');
      });
      queues.set(key, turn);
      return turn;
    };
    await forManyKeys('order', 1_000, withNaiveLock);
    expect(queues.size).toBe(1_000);
    await endAllTtls(server);
    expect(await server.command('DBSIZE')).toBe(1_000);
  });

  it('this library keeps nothing of keys that never come again, but in Redis one counter for all of them [G178]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const memoryBefore = await memoryOf(server);
    const once = (key: string) => locks.withLock(key, (lock) => lock.assertHeld());
    const bytesLeft = await bytesLeftBy((round) => forManyKeys(`order ${round}`, COUNT, once));
    expect(bytesLeft / COUNT).toBeLessThan(150); // less than the key alone
    expect(locks.size).toBe(0);

    expect(await server.keys()).toEqual([COUNTER]);
    await until(async () => (await memoryOf(server)) - memoryBefore < 6 * COUNT * 100, {
      what: 'the memory of Redis is back',
    });
  });

  it('this library as a Redlock keeps on each node at most 4 096 counters, and what the node remembers of its restarts [G248]', async () => {
    const nodes = await redisServers(3);
    const locks = await openLocks({ redlock: nodes.map(({ url }) => url), commandTimeoutMs: 20_000 });
    await forManyKeys('order', 1_000, (key) => locks.withLock(key, (lock) => lock.assertHeld()));
    for (const node of nodes) {
      await until(async () => (await node.keys('lock:{*')).length === 0, { what: 'the last locks are released' });
      const keys = await node.keys();
      expect(keys.filter((key) => !isCounter(key))).toEqual(['lock:admission']);
      const shards = keys.filter(isCounter).map((key) => Number(key.split(':')[2]));
      expect(shards.length).toBeGreaterThan(500);
      expect(shards.every((shard) => shard >= 0 && shard < SHARDS)).toBe(true);
    }
    expect(locks.size).toBe(0);
  });
});
