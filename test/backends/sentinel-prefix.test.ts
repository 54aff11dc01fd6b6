import { createSentinel } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import type { RedisSource } from 'nest-redis-lock';
import type { SentinelOptions } from '../../lib/stores/redis/client/source.js';
import { openLocks } from '../support/open-locks.js';
import { SentinelGroup } from '../support/redis-sentinel.js';

const keyPrefix = 'app:';

type Form = [form: string, sourceOf: (options: SentinelOptions) => RedisSource];
const FORMS: Form[] = [
  ['options', (options) => options],
  ['a function', (options) => () => createSentinel(options as Parameters<typeof createSentinel>[0])],
];
/** A client of node-redis 5 has no prefix. */
const hasPrefix = '_keyPrefix' in createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] });

it.each(hasPrefix ? FORMS : FORMS.slice(0, 1))(
  'behind Sentinels a lock of ioredis excludes one of node-redis with the same prefix, given as %s [G860]',
  async (_, sourceOf) => {
    const group = await SentinelGroup.start();
    onTestFinished(() => group.stop());
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
