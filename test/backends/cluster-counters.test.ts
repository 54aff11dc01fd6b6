import { Cluster } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { clusterSlot, tagOfSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { redisServers } from '../support/stage.js';
import { isCounter, keysOfLocks } from '../support/stored.js';
import { until } from '../support/until.js';

const CLIENT_PREFIX = 'app:';
/** Ahead of every clock, so that tokens show whose counter they come from. */
const AHEAD = 3e15;

async function startCluster(masters: number): Promise<RedisCluster> {
  const cluster = await RedisCluster.start(masters);
  onTestFinished(() => cluster.stop());
  return cluster;
}

function clientOf({ nodes }: RedisCluster, keyPrefix?: string): Cluster {
  const client = new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    { keyPrefix },
  );
  onTestFinished(() => client.disconnect());
  return client;
}

async function keysOf({ nodes }: RedisCluster): Promise<string[]> {
  return (await Promise.all(nodes.map((node) => node.keys()))).flat();
}

function counterOf(key: string, clientPrefix: string): string {
  return `lock:fence{${tagOfSlot(clusterSlot(`${clientPrefix}lock:{${key}}`))}}`;
}

/** Another key whose lock is in the same slot. */
function besideOf(key: string, clientPrefix: string): string {
  const slot = (of: string) => clusterSlot(`${clientPrefix}lock:{${of}}`);
  for (let index = 0; ; index++) if (slot(`beside ${index}`) === slot(key)) return `beside ${index}`;
}

describe('the fencing counters of a Cluster', () => {
  it.each(['', CLIENT_PREFIX])(
    'the locks of a slot share a counter, and those of another slot do not (client prefix %j)',
    async (prefix) => {
      const cluster = await startCluster(3);
      const client = clientOf(cluster, prefix);
      const locks = await openLocks({ redis: client, commandTimeoutMs: 20_000 });
      const counter = counterOf('one', prefix);
      await client.set(counter, tokenText(AHEAD));
      const tokens: number[] = [];
      for (const key of ['one', besideOf('one', prefix), 'one'])
        tokens.push(await locks.withLock(key, ({ fencingToken }) => fencingToken));
      expect(tokens).toEqual([AHEAD + 1, AHEAD + 2, AHEAD + 3]);
      expect(await keysOf(cluster)).toEqual([prefix + counter]);
      expect(await locks.withLock('two', ({ fencingToken }) => fencingToken)).toBeLessThan(AHEAD);
      expect((await keysOf(cluster)).filter(isCounter)).toHaveLength(2);
    },
  );

  it('a Cluster votes in a Redlock with admission: false, as the keys of a vote are in one slot', async () => {
    const cluster = await startCluster(2);
    const [kept, killed] = await redisServers(2);
    const redlock = () => [clientOf(cluster, CLIENT_PREFIX), kept!.url, killed!.url];
    const open = () => openLocks({ redlock: redlock(), admission: false, commandTimeoutMs: 20_000 });
    const [locks, others] = [await open(), await open()];
    await killed!.kill(); // so that nothing is granted without the vote of the Cluster
    for (const key of ['one', 'two', 'one']) {
      const lock = await locks.acquire(key);
      const waiting = others.acquire(key);
      await until(async () => (await others.inspect(key))?.waiters === 1, { what: 'it waits' });
      await lock.extend();
      expect((await others.inspect(key))?.holder?.owner).toBe(lock.owner);
      expect(await lock.release()).toBe(true);
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await next.release()).toBe(true);
    }
    const left = async () => [...(await keysOf(cluster)), ...(await keysOfLocks(kept!))];
    await until(async () => (await left()).every(isCounter), { what: 'nothing but counters is left' });
    expect((await keysOf(cluster)).sort()).toEqual(
      ['one', 'two'].map((key) => CLIENT_PREFIX + counterOf(key, CLIENT_PREFIX)).sort(),
    );
  });
});
