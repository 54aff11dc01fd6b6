import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import type { RedisSource } from 'nest-redis-lock';
import type { NodeRedisOptions } from '../../lib/stores/redis/client/source.js';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';
import { until } from '../support/until.js';

/** Time enough on a machine that does other work. */
const COMMAND_MS = 20_000;

it.each<[what: string, sourceOf: (options: { name: string; sentinelRootNodes: Address[] }) => RedisSource]>([
  ['options', (options) => options as NodeRedisOptions],
  ['a client of the application', (options) => given(createSentinel(options))],
  ['a function', (options) => () => createSentinel(options)],
])(
  'with %s of node-redis the master that Sentinel names has the locks, and so has the one that takes its place',
  async (_what, sourceOf) => {
    const group = await SentinelGroup.start();
    onTestFinished(() => group.stop());
    const { sentinels, name } = group.options;
    const sentinelRootNodes = sentinels!.map(({ host, port }) => ({ host: host!, port: port! }));
    const locks = await openLocks({
      redis: sourceOf({ name: name!, sentinelRootNodes }),
      commandTimeoutMs: COMMAND_MS,
    });
    const before = await locks.acquire('before');
    expect(await group.primary.command('EXISTS', 'lock:{before}')).toBe(1);
    await group.primary.kill();
    const next = await group.failedOver();
    const after = await until(() => locks.acquire('after').catch(() => undefined), { what: 'the new master is used' });
    expect(await next.command('EXISTS', 'lock:{after}')).toBe(1);
    expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
    await after.release();
    await locks.close();
    const left = async () => !String(await next.command('CLIENT', 'LIST')).includes('nest-redis-lock');
    await until(left, { what: 'its connections are closed' });
  },
);

interface Address {
  host: string;
  port: number;
}

function given<C extends { on(event: 'error', listener: () => void): unknown; isOpen: boolean; destroy(): unknown }>(
  client: C,
): C {
  client.on('error', () => {});
  onTestFinished(() => {
    expect(client.isOpen).toBe(true); // it is the application's
    client.destroy();
  });
  return client;
}
