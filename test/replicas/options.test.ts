import { describe, expect, it } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { resolveOptions } from '../../lib/compose/redis-lock-options.js';
import { openLocks } from '../support/open-locks.js';
import { replicaOf } from '../support/replica-of.js';
import { redisServer } from '../support/stage.js';

const redis = 'redis://localhost:6379';

describe('The option waitForReplicas', () => {
  it.each<[string, RedisLockModuleOptions]>([
    ['redlock', { redlock: [redis, redis, redis], waitForReplicas: { count: 1, timeoutMs: 100 } }],
    ['memory', { memory: true, waitForReplicas: { count: 1, timeoutMs: 100 } }],
  ])('is refused with %s, which has no replicas', (kind, options) => {
    expect(() => resolveOptions(options)).toThrow(
      expect.objectContaining({ code: 'LOCK_OPTIONS', message: expect.stringContaining(`got ${kind}`) }),
    );
  });

  it.each<[string, unknown, string]>([
    ['no object', 1, 'waitForReplicas must be an object: got 1'],
    ['null', null, 'waitForReplicas must be an object: got null'],
    ['an array', [1, 100], 'waitForReplicas must be an object: got an array'],
    ['no count', { timeoutMs: 100 }, 'waitForReplicas.count must be a whole number from 1 to 100: got undefined'],
    ['no time', { count: 1 }, 'waitForReplicas.timeoutMs must be a whole number of milliseconds from 1 to 60000'],
    ['a count of 0', { count: 0, timeoutMs: 100 }, 'waitForReplicas.count must be a whole number from 1 to 100: got 0'],
    ['a time of 0, which WAIT takes for without end', { count: 1, timeoutMs: 0 }, 'from 1 to 60000: got 0'],
    ['words', { count: '1', timeoutMs: 100 }, 'got "1"'],
    ['more than it knows', { count: 1, timeoutMs: 100, ms: 1 }, 'There is no option "ms": expected count, timeoutMs'],
    ['more than a third of the ttl', { count: 1, timeoutMs: 10_001 }, 'at most a third of ttlMs: got 10001'],
  ])('is refused with %s', (_, waitForReplicas, message) => {
    const options = { redis, waitForReplicas } as RedisLockModuleOptions;
    expect(() => resolveOptions(options)).toThrow(
      expect.objectContaining({ code: 'LOCK_OPTIONS', message: expect.stringContaining(message) }),
    );
  });

  it('refuses a ttl of a call, an extension or an election whose extensions could not end in time', async () => {
    const server = await redisServer();
    const locks = await openLocks({
      redis: server.url,
      ttlMs: 60_000,
      waitForReplicas: { count: 1, timeoutMs: 6_000 },
    });
    const refusal = {
      code: 'LOCK_OPTIONS',
      message: expect.stringMatching(
        /^ttlMs must be at least 18000: got \d+\. That is three times waitForReplicas\.timeoutMs: /,
      ),
    };
    await expect(locks.acquire('key', { ttlMs: 17_999 })).rejects.toMatchObject(refusal);
    await expect(locks.acquireAll(['key'], { ttlMs: 17_999 })).rejects.toMatchObject(refusal);
    expect(() => locks.leader('key')).toThrow(expect.objectContaining(refusal)); // its default is 15 s
    expect(() => locks.leader('key', { ttlMs: 18_000 })).not.toThrow();
    await replicaOf(server);
    const lock = await locks.acquire('another', { ttlMs: 18_000 });
    await expect(lock.extend(17_999)).rejects.toMatchObject(refusal);
    await lock.release();
  });
});
