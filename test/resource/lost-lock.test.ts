import { Redis } from 'ioredis';
import { LockLostError, RedisFence, StaleTokenError } from 'nest-redis-lock';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

it('a write that is refused under a lost lock is told as the outcome of its loss', async () => {
  const redis = await RedisServer.start();
  const client = new Redis(redis.url);
  onTestFinished(async () => {
    client.disconnect();
    await redis.stop();
  });
  const [first, second] = await Promise.all([
    openLocks({ redis: redis.url, commandTimeoutMs: 20_000 }),
    openLocks({ redis: redis.url, commandTimeoutMs: 20_000 }),
  ]);
  const fence = new RedisFence(client);

  const late = first.withLock('tea', { ttlMs: 1_000, watchdog: false }, async (lock) => {
    await until(() => !lock.isHeld, { what: 'its lease is over' });
    await second.withLock('tea', (newer) => fence.write('tea', newer.fencingToken, 'new'));
    await fence.write('tea', lock.fencingToken, 'late');
  });

  await expect(late).rejects.toBeInstanceOf(LockLostError);
  await expect(late).rejects.toMatchObject({
    status: 503,
    outcome: { status: 'rejected', reason: expect.any(StaleTokenError) },
  });
  expect(await fence.read('tea')).toBe('new');
});
