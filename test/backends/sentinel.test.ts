import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import type { LockService, RedisSource } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { proxyTo, sentinelGroup } from '../support/stage.js';
import { until } from '../support/until.js';

interface Address {
  host: string;
  port: number;
}

const ofNodeRedis = (sentinelRootNodes: Address[], name: string) => ({ sentinelRootNodes, name });

/** A server that accepts connections, and never answers. */
async function silentSentinel() {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.resume().on('error', () => {}));
    socket.on('close', () => sockets.delete(socket));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port, sockets };
}

it('while the Sentinels of a client of node-redis hang, calls are refused and say so, and the start does not hang [G858]', async () => {
  const { host, port } = await silentSentinel();
  const redis = createSentinel(ofNodeRedis([{ host, port }], 'main'));
  redis.on('error', () => {});
  await expect(openLocks({ redis, connectTimeoutMs: 20_000 })).rejects.toThrow(
    'no Sentinel has named the master within 5000 ms',
  );
});

it('closing the locks on node-redis disconnects from Sentinels that hang [G859]', async () => {
  const { host, port, sockets } = await silentSentinel();
  const locks = await openLocks({ redis: ofNodeRedis([{ host, port }], 'main'), lazyConnect: true });
  await expect(locks.acquire('x', { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await locks.close();
  await until(() => sockets.size === 0, { what: 'its connection is closed' });
});

it('node-redis asks Sentinels again that are back, or name another master, long after the start [G862]', async () => {
  const group = await sentinelGroup();
  const { sentinels, name } = group.options;
  const ways = await Promise.all((sentinels as Address[]).map(proxyTo));
  for (const way of ways) way.refuse();
  const toWays = ways.map(({ port }) => ({ host: '127.0.0.1', port }));
  const early = await openLocks({ redis: ofNodeRedis(toWays, name!), lazyConnect: true, commandTimeoutMs: 20_000 });
  await expect(early.acquire('early', { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await sleep(25_000); // node-redis gives up after 17 attempts, a second apart

  for (const way of ways) await way.accept();
  const acquired = (locks: LockService, key: string) => locks.acquire(key).catch(() => sleep(200, undefined));
  await (await until(() => acquired(early, 'early'), { what: 'a Sentinel is found' })).release();

  await group.primary.kill();
  const late = await openLocks({
    redis: ofNodeRedis(sentinels as Address[], name!),
    lazyConnect: true,
    commandTimeoutMs: 20_000,
  });
  await expect(late.acquire('late', { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await group.failedOver();
  await (await until(() => acquired(late, 'late'), { what: 'the new master is found', timeoutMs: 60_000 })).release();
});

it('a client of node-redis for Sentinels that the application has closed is not opened again when the connection to the master breaks [G1025]', async () => {
  const group = await sentinelGroup();
  const { sentinels, name } = group.options;
  const sentinelRootNodes = sentinels!.map(({ host, port }) => ({ host: host!, port: port! }));
  const client = createSentinel({ sentinelRootNodes, name: name! }).on('error', () => {});
  await client.connect();
  const locks = await openLocks({ redis: client, commandTimeoutMs: 500 });
  await locks.withLock('key', () => {});
  await client.destroy();
  await group.primary.kill();
  await expect(locks.acquire('key')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await expect(locks.acquire('key', { waitMs: 2_000 })).rejects.toThrow('the application has closed its client');
  expect(client.isOpen).toBe(false);
});

it('a call is notified of its turn although the first Sentinel hangs for longer than a subscription may take', async () => {
  const group = await sentinelGroup();
  const { host, port } = await silentSentinel();
  const { sentinels, name } = group.options;
  const redis = { sentinels: [{ host, port }, ...sentinels!], name, sentinelCommandTimeout: 6_000 };
  const [holding, waiting] = [await openLocks({ redis: group.options }), await openLocks({ redis, lazyConnect: true })];
  await until(
    () =>
      waiting!.tryAcquire('other').then(
        (lock) => lock?.release(),
        () => false,
      ),
    {
      what: 'the second Sentinel is asked',
      timeoutMs: 20_000,
    },
  );
  const held = await holding!.acquire('x');
  const waited = waiting!.acquire('x', { waitMs: 60_000 });
  await until(async () => String(await group.primary.command('PUBSUB', 'CHANNELS')).includes('inbox'), {
    what: 'it listens',
    timeoutMs: 30_000,
  });
  await held.release();
  await (await waited).release();
});

const keyPrefix = 'app:';

type Form = [form: string, sourceOf: (options: object) => RedisSource];
const FORMS: Form[] = [
  ['options', (options) => options as RedisSource],
  ['a function', (options) => () => createSentinel(options as Parameters<typeof createSentinel>[0])],
];
/** A client of node-redis 5 has no prefix. */
const hasPrefix = '_keyPrefix' in createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] });

it.each(hasPrefix ? FORMS : FORMS.slice(0, 1))(
  'behind Sentinels a lock of ioredis excludes a lock of node-redis with the same prefix, given as %s [G860]',
  async (_, sourceOf) => {
    const group = await sentinelGroup();
    const { sentinels, name } = group.options;
    const sentinelRootNodes = sentinels!.map(({ host, port }) => ({ host: host!, port: port! }));
    const settings = { ttlMs: 60_000, commandTimeoutMs: 20_000 };
    const ofIoredis = await openLocks({ ...settings, redis: { sentinels, name, keyPrefix } });
    const ofNodeRedis = await openLocks({
      ...settings,
      redis: sourceOf({ sentinelRootNodes, name: name!, keyPrefix }),
      waitForReplicas: { count: 1, timeoutMs: 5_000 }, // they are asked on a connection of its own
    });
    const held = await ofIoredis.acquire('x');
    expect(await ofNodeRedis.tryAcquire('x')).toBeNull();
    expect((await ofNodeRedis.list()).locks).toMatchObject([{ key: 'x' }]);
    await held.release();
    const lock = await ofNodeRedis.acquire('x');
    expect(await group.primary.command('EXISTS', 'app:lock:{x}')).toBe(1);
    await lock.release();
  },
);
