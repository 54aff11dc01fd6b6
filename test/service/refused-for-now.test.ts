import { describe, expect, it, onTestFinished } from 'vitest';
import { PACKAGES } from '../adapters/packages.js';
import { SlotMove } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { redisCluster, redisServer } from '../support/stage.js';

describe.each(Object.entries(PACKAGES))('With %s', (_name, { clientOf, clusterOf }) => {
  /** Locks by a client of the application, whose connection the library leaves alone. */
  const locksBy = (of: () => { client: object; close(): void }, commandTimeoutMs: number) => {
    const { client, close } = of();
    onTestFinished(close);
    return openLocks({ redis: client as never, commandTimeoutMs });
  };

  it('a call outlasts a primary that is a replica for a moment, on a connection that stays, within commandTimeoutMs [G1020]', async () => {
    const [server, other] = [await redisServer(), await redisServer()];
    const patient = await locksBy(() => clientOf(server.url), 20_000);
    const hasty = await locksBy(() => clientOf(server.url), 100);
    for (const locks of [patient, hasty]) await locks.withLock('warm', () => {});
    await server.command('REPLICAOF', '127.0.0.1', other.port);
    const call = patient.acquire('key', { waitMs: 60_000 });
    const trial = patient.tryAcquire('tried');
    await expect(hasty.acquire('other')).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      causes: [{ problem: expect.stringContaining('READONLY') }],
    });
    await server.command('REPLICAOF', 'NO', 'ONE');
    expect((await call).isHeld).toBe(true);
    expect((await trial)?.isHeld).toBe(true);
  });

  it('a call whose waitMs ends while the server refuses says what that said [G1021]', async () => {
    const [server, other] = [await redisServer(), await redisServer()];
    const locks = await locksBy(() => clientOf(server.url), 20_000);
    await locks.withLock('warm', () => {});
    await server.command('REPLICAOF', '127.0.0.1', other.port);
    await expect(locks.acquire('key', { waitMs: 200 })).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      causes: [{ problem: expect.stringContaining('READONLY') }],
    });
    await server.command('REPLICAOF', 'NO', 'ONE');
    expect((await locks.acquire('key')).isHeld).toBe(true);
  });

  it('a call and a release outlast a slot that moves, within commandTimeoutMs [G1022]', async () => {
    const cluster = await redisCluster();
    const of = () => clusterOf(cluster.nodes.map(({ url }) => url));
    const [patient, hasty] = [await locksBy(of, 20_000), await locksBy(of, 100)];
    for (const locks of [patient, hasty]) await locks.withLock('key', () => {});
    const held = await patient.acquire('key', { ttlMs: 600_000 });
    const migration = new SlotMove(cluster, 'key');
    await migration.begin();
    await migration.move(migration.counter);
    const failed: string[] = [];
    patient.events$.subscribe(({ type }) => type === 'release-failed' && failed.push(type));
    const call = patient.acquire('key', { waitMs: 60_000 });
    const release = held.release();
    await expect(hasty.tryAcquire('key')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await migration.move('lock:{key}');
    await migration.end();
    expect(await release).toBe(true);
    expect((await call).fencingToken).toBeGreaterThan(held.fencingToken);
    expect(failed).toEqual([]);
  });
});
