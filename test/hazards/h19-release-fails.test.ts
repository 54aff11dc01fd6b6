import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { tryLock, unlock } from '../support/naive.js';
import { until } from '../support/until.js';
import { clientOf, freeOn, proxyTo, redisServer } from '../support/stage.js';

const COMMAND_TIMEOUT_MS = 700;

describe('H19: Redis goes away while the work runs', () => {
  it('a naive lock replaces the result or error of the work by the failure of its release', async () => {
    const server = await redisServer();
    const redis = clientOf(server, { maxRetriesPerRequest: 0 });
    const withNaiveLock = async <T>(work: () => Promise<T>): Promise<T> => {
      expect(await tryLock(redis, 'lock', 'A', 60_000)).toBe(true);
      try {
        return await work();
      } finally {
        await unlock(redis, 'lock', 'A');
      }
    };
    const paid = withNaiveLock(async () => {
      await server.kill();
      return 'the card is charged';
    });
    await expect(paid).rejects.toThrow(/max retries|closed/i);
    await server.restart();
    const refused = withNaiveLock(async () => {
      await server.kill();
      throw new Error('the card is refused');
    });
    await expect(refused).rejects.toThrow(/max retries|closed/i);
  });

  it('this library returns the result of the work, or throws its error, when Redis is dead [G170]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url, commandTimeoutMs: COMMAND_TIMEOUT_MS });
    const paid = locks.withLock('key', async () => {
      await server.kill();
      return 'the card is charged';
    });
    expect(await paid).toBe('the card is charged');
    await server.restart();
    await until(() => locks.withLock('another', () => true).catch(() => false), { what: 'Redis is reached again' });
    const refused = locks.withLock('key', async () => {
      await server.kill();
      throw new Error('the card is refused');
    });
    await expect(refused).rejects.toThrow('the card is refused');
  });

  it('this library returns the result while Redis cannot be reached, and releases the lock when it can be [G171]', async () => {
    const server = await redisServer();
    const way = await proxyTo(server);
    const locks = await openLocks({ redis: way.url, commandTimeoutMs: COMMAND_TIMEOUT_MS });
    const paid = locks.withLock('key', { ttlMs: 60_000 }, () => {
      way.hold();
      return 'the card is charged';
    });
    expect(await paid).toBe('the card is charged');
    expect(await server.keys('lock:{key}')).toEqual(['lock:{key}']);
    way.cut(); // with it goes the release that was on its way
    way.release();
    await freeOn([server], 'key');
  });
});
