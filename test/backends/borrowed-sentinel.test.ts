import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';

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
