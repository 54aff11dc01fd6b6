import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { PACKAGES } from '../adapters/packages.js';
import { openLocks } from '../support/open-locks.js';
import { blockEventLoop, redisCluster, redisServer } from '../support/stage.js';

function warnings() {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  onTestFinished(() => warned.mockRestore());
  return warned;
}

it.each(Object.entries(PACKAGES))(
  'fifteen registrations on one client of %s, for a server or a Cluster, warn of no leak, and leave its limit as it was [G1027]',
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
  await locks.withLock(['a', 'b'], ({ signal, closing }) => [signal, closing].forEach(listen));
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
