import { Cluster } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Lock } from 'nest-redis-lock';
import { clusterSlot } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';

const LOCKS = 600;
const TTL_MS = 9_000;

describe('In a Cluster', () => {
  let cluster: RedisCluster;
  /** Of the library. */
  let client: Cluster;

  beforeAll(async () => {
    cluster = await RedisCluster.start(3);
  });
  afterAll(() => cluster.stop());
  beforeEach(async () => {
    client = new Cluster(
      cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
      { keyPrefix: 'app:' },
    );
    onTestFinished(() => client.disconnect());
    await client.ping();
  });

  /** Holds locks of many slots. */
  async function hold(name: string) {
    const locks = await openLocks({ redis: client, ttlMs: TTL_MS });
    const keys = Array.from({ length: LOCKS }, (_, index) => `${name}:${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key)));
    await Promise.all(cluster.nodes.map((node) => node.resetCalls()));
    return { keys, held };
  }

  /** Waits until each was extended by the watchdog once more. */
  async function untilExtended(held: readonly Lock[]): Promise<void> {
    const endsAt = (lock: Lock) => performance.now() + lock.remainingMs;
    const before = held.map(endsAt);
    const isExtended = (lock: Lock, index: number) => endsAt(lock) > before[index]! + TTL_MS / 10;
    await until(() => held.every(isExtended), { what: 'all are extended', timeoutMs: 5 * TTL_MS });
  }
  const commands = async () => {
    const calls = await Promise.all(cluster.nodes.map((node) => node.calls()));
    return calls.reduce((total, { evalsha = 0, eval: evaluated = 0 }) => total + evalsha + evaluated, 0);
  };

  it('very many locks of many slots are all extended, with a command for each slot at most [G284]', async () => {
    const { keys, held } = await hold('held');
    await untilExtended(held);
    const slots = new Set(keys.map((key) => clusterSlot(`app:lock:{${key}}`))).size;
    expect(slots).toBeGreaterThan(LOCKS / 2);
    expect(await commands()).toBeLessThanOrEqual(2 * slots); // some may have been extended twice
    expect(held.every((lock) => lock.isHeld)).toBe(true);
  });

  it('a lock that was taken is lost, and no other that is extended with it [G286]', async () => {
    const locks = await openLocks({ redis: client, ttlMs: TTL_MS });
    const keys = Array.from({ length: LOCKS }, (_, index) => `lost:${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key)));
    await client.set('lock:{lost:7}', 'another', 'PX', 60_000);
    await client.del('lock:{lost:8}');
    await until(() => held[7]!.signal.aborted && held[8]!.signal.aborted, {
      what: 'the loss is found',
      timeoutMs: 2 * TTL_MS,
    });
    expect(held[7]!.signal.reason).toMatchObject({ reason: 'stolen' });
    expect(held[8]!.signal.reason).toMatchObject({ reason: 'expired' });
    expect(held.filter((lock) => !lock.isHeld)).toHaveLength(2);
    expect(await client.get('lock:{lost:7}')).toBe('another');
  });
});
