import { expect, it, onTestFinished, vi } from 'vitest';
import { PACKAGES } from '../adapters/packages.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { redisServer } from '../support/stage.js';

function warnings() {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  onTestFinished(() => warned.mockRestore());
  return warned;
}

it.each(Object.entries(PACKAGES))(
  'fifteen registrations on one client of %s, for a server or a Cluster, warn of no leak, and leave its limit as it was [G1027]',
  async (_name, { clientOf, clusterOf }) => {
    const server = await redisServer();
    const cluster = await RedisCluster.start(3);
    onTestFinished(() => cluster.stop());
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
  await locks.withLock(['a', 'b'], ({ signal, closing }) => [signal, closing].forEach(listen));
  await new Promise<void>((resolve) => {
    locks.whileLeader('leader', {}, async ({ signal }) => {
      listen(signal);
      resolve();
    });
  });
  expect(warned.mock.calls).toEqual([]);
});
