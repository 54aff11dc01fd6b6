import { setTimeout as sleep } from 'node:timers/promises';
import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import { until } from '../support/until.js';

it.each(['before the locks', 'after them'])(
  'a client of node-redis for Sentinels, on which locks were open, tells of a failover to who has listened %s, and its errors end no process',
  async (when) => {
    const group = await SentinelGroup.start();
    onTestFinished(() => group.stop());
    const { sentinels, name } = group.options;
    const sentinelRootNodes = sentinels!.map(({ host, port }) => ({ host: host!, port: port! }));
    // Without it node-redis 5 would wait for the dead master, see docs/clients.md.
    const nodeClientOptions = { socket: { reconnectStrategy: (retries: number) => retries < 2 && 100 } };
    const client = createSentinel({ sentinelRootNodes, name: name!, scanInterval: 200, nodeClientOptions });
    onTestFinished(() => client.destroy());
    const heard: string[] = [];
    const listen = () => client.on('topology-change', ({ type }: { type: string }) => heard.push(type));

    if (when === 'before the locks') listen();
    const locks = await openLocks({ redis: client, commandTimeoutMs: 20_000 });
    await locks.close();
    if (when === 'after them') listen();
    heard.length = 0;
    await group.primary.kill();
    await group.failedOver();
    await until(() => heard.includes('MASTER_CHANGE'), { what: 'it tells of the new master' });
    await group.killSentinels();
    await sleep(30_000); // it gives up its search, and nobody but the locks has listened to its errors
    expect(client.isOpen).toBe(true);
  },
);

it('a client of node-redis for Sentinels that the application has closed is not opened again when the connection to the master breaks [G1025]', async () => {
  const group = await SentinelGroup.start();
  onTestFinished(() => group.stop());
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
