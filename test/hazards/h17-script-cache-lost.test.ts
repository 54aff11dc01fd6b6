import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { tryLock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';

describe('H17: Redis forgets the scripts', () => {
  it('a naive lock that loaded its script at the start can no longer be released when Redis forgets it', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    const sha = (await redis.script('LOAD', release)) as string;

    expect(await tryLock(redis, 'lock', 'A', 60_000)).toBe(true);
    await server.command('SCRIPT', 'FLUSH');
    await expect(redis.evalsha(sha, 1, 'lock', 'A')).rejects.toThrow('NOSCRIPT');
    expect(await server.command('GET', 'lock')).toBe('A');
  });

  it('this library sends scripts again when Redis forgot them, whatever the operation, one by one and many at once [G167]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const forget = () => server.command('SCRIPT', 'FLUSH');

    const lock = await locks.acquire('key');
    await forget();
    await lock.extend();
    await forget();
    expect(await locks.inspect('key')).toMatchObject({ holder: { owner: lock.owner } });
    await forget();
    expect(await lock.release()).toBe(true);

    const keys = Array.from({ length: 250 }, (_, index) => `key ${index}`);
    await forget();
    const held = await Promise.all(keys.map((key) => locks.acquire(key)));
    await forget();
    await Promise.all(held.map((one) => one.extend()));
    await forget();
    expect(await Promise.all(held.map((one) => one.release()))).toEqual(keys.map(() => true));
    expect(new Set(held.map(({ owner }) => owner)).size).toBe(keys.length);
    expect(await server.keys('lock:{*}')).toEqual([]);
  });
});
