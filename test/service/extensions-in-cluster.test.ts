import { Cluster } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { EXTEND, EXTEND_ACROSS } from '../../lib/stores/redis/scripts/lua.js';
import type { Lock } from '../../lib/api/lock.js';
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

  it('very many locks are extended with few commands, whatever their slots [G284]', async () => {
    const { keys, held } = await hold('held');
    await untilExtended(held);
    const slots = new Set(keys.map((key) => clusterSlot(`app:lock:{${key}}`))).size;
    expect(slots).toBeGreaterThan(LOCKS / 2);
    expect(await commands()).toBeLessThan(slots / 2);
    expect(held.every((lock) => lock.isHeld)).toBe(true);
  });

  it('locks are extended by slot where the servers refuse to use keys of several slots in one script [G285]', async () => {
    const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>;
    let refused = 0;
    client.evalsha = ((sha: string, ...args: unknown[]) => {
      if (sha !== EXTEND_ACROSS.sha) return evalsha(sha, ...args);
      refused++;
      const error = new Error('ERR Script tried accessing undeclared key');
      return Promise.reject(Object.assign(error, { name: 'ReplyError' }));
    }) as typeof client.evalsha;
    const { held } = await hold('refused');
    await untilExtended(held);
    expect(refused).toBeGreaterThan(0);
    const before = refused;
    await untilExtended(held);
    expect(refused).toBe(before); // it is not tried again for a while
    expect(held.every((lock) => lock.isHeld)).toBe(true);
  });

  it('many locks with a short ttl are extended by slot, at once', async () => {
    const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>;
    const sent: string[] = [];
    client.evalsha = ((sha: string, ...args: unknown[]) => {
      sent.push(sha);
      return evalsha(sha, ...args);
    }) as typeof client.evalsha;
    const locks = await openLocks({ redis: client, ttlMs: 900 });
    await Promise.all(Array.from({ length: 100 }, (_, index) => locks.acquire(`short:${index}`)));
    await until(() => sent.filter((sha) => sha === EXTEND.sha).length >= 100, { what: 'they are extended' });
    expect(sent).not.toContain(EXTEND_ACROSS.sha);
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
