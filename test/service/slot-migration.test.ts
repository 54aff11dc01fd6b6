import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { clusterSlot, SlotMove } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';

const AHEAD = 3e15;

describe('While a slot of a Cluster moves to another node', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await RedisCluster.start(3);
  });
  afterAll(() => cluster.stop());

  const open = () =>
    openLocks({ redis: () => new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }))) });
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
    const lock = await until(() => locks.tryAcquire('free').catch(() => undefined), { what: 'it can be had' });
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

  it('a fencing counter moves with its slot, and all locks of the slot count on from it [G252]', async () => {
    const locks = await open();
    const migration = new SlotMove(cluster, 'counted');
    // Ahead of every clock: so a counter that did not move would show.
    await migration.from.command('SET', migration.counter, String(AHEAD));
    expect(await locks.withLock('counted', ({ fencingToken }) => fencingToken)).toBe(AHEAD + 1);
    await migration.begin();
    await migration.move(migration.counter);
    await migration.end();
    const tokens: number[] = [];
    for (const key of ['counted', besideOf('counted')]) {
      const lock = await until(() => locks.tryAcquire(key).catch(() => undefined), { what: 'it can be had' });
      tokens.push(lock.fencingToken);
      await lock.release();
    }
    expect(tokens).toEqual([AHEAD + 2, AHEAD + 3]);
    expect(await migration.to.command('GET', migration.counter)).toBe(String(AHEAD + 3));
    expect(await migration.from.keys(migration.counter)).toEqual([]);
  });
});

/** Another key whose lock is in the same slot. */
function besideOf(key: string): string {
  const slot = clusterSlot(`lock:{${key}}`);
  for (let index = 0; ; index++) if (clusterSlot(`lock:{beside ${index}}`) === slot) return `beside ${index}`;
}
