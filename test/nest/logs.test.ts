import { LockUnavailableError, RedisLockModule } from 'nest-redis-lock';
import { describe, expect, it } from 'vitest';
import { makeApp, startModules, type TestApp } from '../support/nest-app.js';
import { redisServer, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';

describe('an outage', () => {
  const durable = () => redisServer('--appendonly', 'yes');
  const AGAIN = 'Locks are available again';
  const again = ({ log }: TestApp) =>
    until(() => log.lines.find((line) => line.includes(AGAIN)), { what: 'locks are available again' });
  const outage = (problem: string) => expect.stringMatching(`^warn Locks are unavailable: ${problem}`);

  it('the end of an outage is logged when nobody asks for locks: how long it took, and how many calls were refused [G195]', async () => {
    const redis = await durable();
    const test = await makeApp({}, { redis: redis.url, commandTimeoutMs: 100 });
    await redis.kill();
    const refused = await Promise.allSettled(['a', 'b', 'c'].map((key) => test.locks.acquire(key)));
    expect(refused.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await redis.restart();
    await again(test);
    expect(test.log.lines).toEqual([
      outage(`127\\.0\\.0\\.1:${redis.port}: `),
      expect.stringMatching(/^warn Locks are available again after \d+\.\d s, during which 3 calls were refused\.$/),
    ]);
    expect(test.events.map(({ type }) => type)).toEqual(['unavailable', 'unavailable', 'unavailable']);
  });

  it('is logged when the fencing counter, which all locks share, is unusable [G970]', async () => {
    const redis = await durable();
    const test = await makeApp({}, { redis: redis.url });
    await redis.command('DEL', 'lock:fence');
    await redis.command('ZADD', 'lock:fence', 1, 'by another program');
    for (const key of ['a', 'b']) await expect(test.locks.acquire(key)).rejects.toThrow('WRONGTYPE');
    expect(test.log.lines).toEqual([outage('127.*ERR the fencing counter lock:fence: WRONGTYPE')]);
    await redis.command('DEL', 'lock:fence');
    await again(test);
  });
});

it('an application whose Redis is dead or hangs fails to start within its limit [G188]', async () => {
  const [dead, hung] = await redisServers(2);
  await dead!.kill();
  hung!.pause();
  for (const { port, url } of [dead!, hung!]) {
    const startedAt = performance.now();
    const starting = startModules({ imports: [RedisLockModule.forRoot({ redis: url, connectTimeoutMs: 2_000 })] });
    const error: unknown = await starting.catch((reason: unknown) => reason);
    expect(performance.now() - startedAt).toBeLessThan(4_000); // the default is 5 000
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain(`127.0.0.1:${port}`);
  }
});

describe('what happens to many locks at once is logged as two lines:', () => {
  const keys = Array.from({ length: 13 }, (_, index) => `key ${index}`);
  const rest = `${keys
    .slice(1, 11)
    .map((key) => `"${key}"`)
    .join(', ')}, 2 more`;

  it('many locks that are lost at once are logged as two lines [G197]', async () => {
    const { locks, log } = await makeApp({}, { memory: true });
    for (const key of keys) await locks.acquire(key);
    for (const key of keys) await locks.forceRelease(key);
    await until(() => log.lines.length === 2, { what: 'the rest is logged' });
    expect(log.lines).toEqual([
      expect.stringMatching(/^error Lock "key 0" \(fencing token \d+\) was lost: forced\.$/),
      `error 12 more locks were lost (forced): ${rest}.`,
    ]);
  });
});
