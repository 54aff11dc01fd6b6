import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { PACKAGES } from '../adapters/packages.js';
import { SlotMove } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { blockEventLoop, redisCluster, redisServer } from '../support/stage.js';

function warnings() {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  onTestFinished(() => warned.mockRestore());
  return warned;
}

it.each(Object.entries(PACKAGES))(
  'fifteen registrations on one client of %s, for a server or a Cluster, cause no warning about a leak, and leave its limit unchanged [G1027]',
  async (_name, { clientOf, clusterOf }) => {
    const server = await redisServer();
    const cluster = await redisCluster();
    const warned = warnings();
    for (const { client, close } of [clientOf(server.url), clusterOf(cluster.nodes.map(({ url }) => url))]) {
      onTestFinished(close);
      const emitter = client as NodeJS.EventEmitter;
      const before = emitter.getMaxListeners();
      const all = await Promise.all(Array.from({ length: 15 }, () => openLocks({ redis: client as never })));
      for (const locks of all) await locks.withLock('key', () => {});
      await Promise.all(all.map((locks) => locks.close()));
      expect(emitter.getMaxListeners()).toBe(before);
    }
    expect(warned.mock.calls).toEqual([]);
  },
);

it('the signals of a lock, of a set and of a leader take any number of listeners without a warning [G1028]', async () => {
  const locks = await openLocks({ redis: (await redisServer()).url });
  const warned = warnings();
  const listen = (signal: AbortSignal) => {
    for (let count = 0; count < 30; count++) signal.addEventListener('abort', () => {});
  };
  await locks.withLock('key', ({ signal, closing }) => [signal, closing].forEach(listen));
  const keys = Array.from({ length: 11 }, (_, at) => `key ${at}`);
  await locks.withLock(keys, ({ signal, closing }) => [signal, closing].forEach(listen));
  await new Promise<void>((resolve) => {
    locks.whileLeader('leader', {}, async ({ signal }) => {
      listen(signal);
      resolve();
    });
  });
  expect(warned.mock.calls).toEqual([]);
});

const COMMAND_TIMEOUT_MS = 300;

describe.each(Object.entries(PACKAGES))('With %s', (_name, { withPrefix }) => {
  it('synchronous work that is longer than commandTimeoutMs ends no call, extension or release that came just before [G1026]', async () => {
    const server = await redisServer();
    const locks = await openLocks({
      redis: withPrefix(server.url, '') as never,
      commandTimeoutMs: COMMAND_TIMEOUT_MS,
      ttlMs: 60_000,
    });
    await locks.withLock('warm', () => {});
    const inTheMeantime = async <T>(call: Promise<T>): Promise<T> => {
      blockEventLoop(2 * COMMAND_TIMEOUT_MS);
      return call;
    };
    const lock = await inTheMeantime(locks.acquire('key'));
    await inTheMeantime(lock.extend());
    expect(await inTheMeantime(lock.release())).toBe(true);
  });
});

describe.each(Object.entries(PACKAGES))('With %s', (_name, { clientOf, clusterOf }) => {
  /** Locks with a client of the application, whose connection the library does not change. */
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

  it('a call whose waitMs ends while the server refuses reports that refusal [G1021]', async () => {
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
