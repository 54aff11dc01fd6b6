import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

interface Address {
  host: string;
  port: number;
}

const ofNodeRedis = (sentinelRootNodes: Address[], name: string) => ({ sentinelRootNodes, name });

/** A server that takes connections, and answers nothing on them. */
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

it('where the Sentinels of a client of node-redis hang, calls are refused and say so, and the start does not hang [G858]', async () => {
  const { host, port } = await silentSentinel();
  const redis = createSentinel(ofNodeRedis([{ host, port }], 'main'));
  redis.on('error', () => {});
  await expect(openLocks({ redis, connectTimeoutMs: 20_000 })).rejects.toThrow(
    'no Sentinel has named the master within 5000 ms',
  );
});

it('Sentinels that hang are left when the locks on node-redis close [G859]', async () => {
  const { host, port, sockets } = await silentSentinel();
  const locks = await openLocks({ redis: ofNodeRedis([{ host, port }], 'main'), lazyConnect: true });
  await expect(locks.acquire('x', { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await locks.close();
  await until(() => sockets.size === 0, { what: 'its connection is closed' });
});

it('Sentinels that are back, or name another master, long after the start are asked again by node-redis [G862]', async () => {
  const group = await SentinelGroup.start();
  onTestFinished(() => group.stop());
  const { sentinels, name } = group.options;
  const ways = await Promise.all((sentinels as Address[]).map(({ port }) => TcpProxy.start(port)));
  onTestFinished(async () => void (await Promise.all(ways.map((way) => way.stop()))));
  for (const way of ways) way.refuse();
  const toWays = ways.map(({ port }) => ({ host: '127.0.0.1', port }));
  const early = await openLocks({ redis: ofNodeRedis(toWays, name!), lazyConnect: true, commandTimeoutMs: 20_000 });
  await expect(early.acquire('early', { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  await sleep(25_000); // node-redis gives up after 17 attempts, a second apart

  for (const way of ways) await way.accept();
  const acquired = (locks: LockService, key: string) => locks.acquire(key).catch(() => undefined);
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
