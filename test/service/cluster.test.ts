import { Cluster } from 'ioredis';
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Lock } from 'nest-redis-lock';
import { clusterSlot, SlotMove } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { clientOfCluster } from '../support/stage.js';
import { until } from '../support/until.js';

const LOCKS = 600;
const TTL_MS = 9_000;

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await RedisCluster.start();
  return () => cluster.stop();
});

describe('In a Cluster', () => {
  /** Commands of the library. */
  let client: Cluster;
  beforeEach(async () => {
    client = clientOfCluster(cluster, { keyPrefix: 'app:' });
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

  /** Waits until the watchdog has extended each of them once more. */
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

  it('a lock that was taken away is lost, but no other lock that is extended with it [G286]', async () => {
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

const AHEAD = 3e15;
const open = () => openLocks({ redis: () => clientOfCluster(cluster) });

it('a held lock whose slot moves can be extended after each step, and nobody else gets it [G56]', async () => {
  const [holder, other] = await Promise.all([open(), open()]);
  const lock = await holder.acquire('held');
  const migration = new SlotMove(cluster, 'held');
  await migration.begin();
  await lock.extend();
  await migration.move(migration.counter);
  await lock.extend();
  const halfMoved = other.tryAcquire('held');
  await expect(halfMoved).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await migration.move('lock:{held}');
  await lock.extend();
  await migration.end();
  await lock.extend();
  const answer = await until(
    () =>
      other.tryAcquire('held').then(
        (acquired) => ({ acquired }),
        () => undefined, // the client may still repeat the refused command
      ),
    { what: 'the new node is asked' },
  );
  expect(answer.acquired).toBeNull();
  expect(await lock.release()).toBe(true);
  expect((await other.acquire('held')).fencingToken).toBeGreaterThan(lock.fencingToken);
});

it('a free lock whose slot moves is unavailable, and can be acquired when the slot has moved [G57]', async () => {
  const locks = await open();
  const before = await locks.acquire('free');
  await before.release();
  const migration = new SlotMove(cluster, 'free');
  await migration.begin();
  await expect(locks.tryAcquire('free')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await migration.move(migration.counter);
  await expect(locks.tryAcquire('free')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await migration.end();
  const lock = await until(() => locks.tryAcquire('free').catch(() => undefined), { what: 'it can be acquired' });
  expect(lock.fencingToken).toBeGreaterThan(before.fencingToken);
});

it('a release of a lock whose slot moves is repeated until the slot has moved [G58]', async () => {
  const [holder, other] = await Promise.all([open(), open()]);
  const failed: string[] = [];
  holder.events$.subscribe(({ type }) => type === 'release-failed' && failed.push(type));
  const lock = await holder.acquire('left', { ttlMs: 600_000 });
  const migration = new SlotMove(cluster, 'left');
  await migration.begin();
  await lock.release();
  expect(failed).toEqual(['release-failed']);
  await migration.moveAll();
  await migration.end();
  const next = await until(() => other.tryAcquire('left').catch(() => undefined), { what: 'it was released' });
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
});

it('a fencing counter moves with its slot, and all locks of the slot continue from it [G252]', async () => {
  const locks = await open();
  const migration = new SlotMove(cluster, 'counted');
  // Ahead of every clock: so a counter that did not move would be noticed.
  await migration.from.command('SET', migration.counter, String(AHEAD));
  expect(await locks.withLock('counted', ({ fencingToken }) => fencingToken)).toBe(AHEAD + 1);
  await migration.begin();
  await migration.move(migration.counter);
  await migration.end();
  const tokens: number[] = [];
  for (const key of ['counted', besideOf('counted')]) {
    const lock = await until(() => locks.tryAcquire(key).catch(() => undefined), { what: 'it can be acquired' });
    tokens.push(lock.fencingToken);
    await lock.release();
  }
  expect(tokens).toEqual([AHEAD + 2, AHEAD + 3]);
  expect(await migration.to.command('GET', migration.counter)).toBe(String(AHEAD + 3));
  expect(await migration.from.keys(migration.counter)).toEqual([]);
});

/** Another key whose lock is in the same slot. */
function besideOf(key: string): string {
  const slot = clusterSlot(`lock:{${key}}`);
  for (let index = 0; ; index++) if (clusterSlot(`lock:{beside ${index}}`) === slot) return `beside ${index}`;
}
