import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { clusterSlot, tagOfSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
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
  const idOf = async (node: RedisServer) => String(await node.command('CLUSTER', 'MYID'));

  /** Does what `redis-cli --cluster reshard` does, step by step. */
  async function migrationOf(key: string) {
    const slot = clusterSlot(`lock:{${key}}`);
    const from = cluster.nodes[Math.floor((slot * cluster.nodes.length) / 16_384)]!;
    const to = cluster.nodes.find((node) => node !== from)!;
    return {
      counter: `lock:fence{${tagOfSlot(slot)}}`,
      from,
      to,
      async begin() {
        await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(from));
        await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', await idOf(to));
      },
      async move(name: string) {
        expect(await from.command('MIGRATE', '127.0.0.1', to.port, name, 0, 5_000)).toBe('OK');
      },
      async end() {
        for (const node of cluster.nodes) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', await idOf(to));
      },
    };
  }

  it('a held lock whose slot moves can be extended after each step, and nobody else gets it [G56]', async () => {
    const [holder, other] = await Promise.all([open(), open()]);
    const lock = await holder.acquire('held');
    const migration = await migrationOf('held');
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
    const migration = await migrationOf('free');
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
    const migration = await migrationOf('left');
    await migration.begin();
    await lock.release();
    expect(failed).toEqual(['release-failed']);
    for (const name of ['lock:{left}', migration.counter]) await migration.move(name);
    await migration.end();
    const next = await until(() => other.tryAcquire('left').catch(() => undefined), { what: 'it was released' });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('a fencing counter moves with its slot, and all locks of the slot count on from it [G252]', async () => {
    const locks = await open();
    const migration = await migrationOf('counted');
    // Ahead of every clock: so a counter that did not move would show.
    await migration.from.command('SET', migration.counter, tokenText(AHEAD));
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
    expect(await migration.to.command('GET', migration.counter)).toBe(tokenText(AHEAD + 3));
    expect(await migration.from.keys(migration.counter)).toEqual([]);
  });
});

/** Another key whose lock is in the same slot. */
function besideOf(key: string): string {
  const slot = clusterSlot(`lock:{${key}}`);
  for (let index = 0; ; index++) if (clusterSlot(`lock:{beside ${index}}`) === slot) return `beside ${index}`;
}
