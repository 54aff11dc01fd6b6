import { Redis } from 'ioredis';
import { createClient, createClientPool, createCluster } from 'redis';
import { LockKeyError, LockOptionsError, RedisFence, StaleTokenError } from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { randomOf } from '../support/random.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';

let redis: RedisServer;
/** It starts while the other tests run. */
let starting: Promise<RedisCluster>;

beforeAll(async () => {
  starting = RedisCluster.start();
  redis = await RedisServer.start();
});

beforeEach(async () => {
  await redis.command('FLUSHALL');
});

afterAll(async () => {
  await redis.stop();
  await (await starting).stop();
});

function connect(options: object = {}): Redis {
  const once = { retryStrategy: () => null, maxRetriesPerRequest: 0 };
  const client = new Redis({ port: redis.port, host: '127.0.0.1', ...once, ...options });
  client.on('error', () => {});
  onTestFinished(() => client.disconnect());
  return client;
}

describe('a RedisFence', () => {
  it('a RedisFence refuses a write with an older token, and says which one it has seen [G29]', async () => {
    const fence = new RedisFence(connect());
    await fence.write('tea', 34, 'new');
    const late = fence.write('tea', 33, 'late');
    await expect(late).rejects.toBeInstanceOf(StaleTokenError);
    await expect(late).rejects.toMatchObject({ fencingToken: 33, seen: 34, isCertain: true, key: 'tea', status: 412 });
    expect(await fence.read('tea')).toBe('new');
    expect(await fence.raise('tea', 34)).toBe(true);
  });

  it('a RedisFence ends with the newest of writers that race on several connections [G30]', async () => {
    const random = randomOf(7);
    const fences = Array.from({ length: 4 }, () => new RedisFence(connect()));
    const tokens = Array.from({ length: 400 }, (_, index) => 1_790_000_000_000_000 + index);
    const newest = tokens.at(-1)!;
    tokens.sort(() => random() - 0.5);
    const outcomes = await Promise.allSettled(
      tokens.map((token, index) => fences[index % 4]!.write('tea', token, `by ${token}`)),
    );
    expect(await fences[0]!.read('tea')).toBe(`by ${newest}`);
    expect(await redis.command('GET', 'fenced:{tea}:token')).toBe(String(newest));
    const refused = outcomes.filter(({ status }) => status === 'rejected').length;
    expect(refused).toBeGreaterThan(300); // a shuffled list rarely sets a new maximum
    expect(refused).toBeLessThan(400);
  });

  it('compares tokens as numbers, all digits of them, for each key, and remembers them for a day or as long as their value', async () => {
    const MAX = Number.MAX_SAFE_INTEGER;
    const fence = new RedisFence(connect({ stringNumbers: true }));
    const raised = [];
    for (const token of [9, 10, 9, MAX - 1, MAX, MAX - 1]) raised.push(await fence.raise('tea', token));
    expect(raised).toEqual([true, true, false, true, true, false]);
    expect(await redis.command('GET', 'fenced:{tea}:token')).toBe(String(MAX));
    await expect(fence.write('tea', MAX - 1, 'late')).rejects.toMatchObject({ seen: MAX });
    expect([await fence.read('tea'), await fence.raise('coffee', 9)]).toEqual([null, true]);
    const leftS = async (name: string) =>
      Math.max(0, Math.ceil(Number(await redis.command('PTTL', name)) / 10_000) * 10);
    expect(await leftS('fenced:{tea}:token')).toBe(86_400);
    await fence.write('short', 1, 'x', { ttlMs: 5_000 });
    await fence.write('long', 1, 'x', { ttlMs: 100_000_000 });
    await fence.write('ever', 1, 'x');
    for (const key of ['long', 'ever']) await fence.raise(key, 2);
    const of = (key: string) => Promise.all(['value', 'token'].map((part) => leftS(`fenced:{${key}}:${part}`)));
    expect([await of('short'), await of('long'), await of('ever')]).toEqual([
      [10, 86_400],
      [100_000, 100_000],
      [0, 0], // it has no time limit
    ]);
    await new RedisFence(connect(), { rememberMs: 60_000, keyPrefix: 'lock' }).raise('tea', 1);
    expect(await leftS('lock:{tea}:token')).toBe(60);
  });

  it('refuses all writes when something else is in the place of the token, or Redis is gone', async () => {
    const fence = new RedisFence(connect());
    await redis.command('SET', 'fenced:{tea}:token', 'surely not');
    await expect(fence.write('tea', 1, 'x')).rejects.toThrow('not a number');
    await redis.command('DEL', 'fenced:{tea}:token');
    await redis.command('LPUSH', 'fenced:{tea}:token', '1');
    await expect(fence.raise('tea', 1)).rejects.toThrow('WRONGTYPE');
    expect(await fence.read('tea')).toBeNull();
    const odd = { evalsha: async () => 'QUEUED', options: {}, status: 'ready' };
    await expect(new RedisFence(odd as never).raise('tea', 1)).rejects.toThrow('answered unexpectedly');
    const gone = new RedisFence(connect({ port: 1 }));
    await expect(gone.write('tea', 2, 'x')).rejects.not.toBeInstanceOf(StaleTokenError);
  });

  it('refuses invalid arguments', async () => {
    const client = connect();
    const fence = new RedisFence(client);
    await expect(fence.raise('', 1)).rejects.toBeInstanceOf(LockKeyError);
    await expect(fence.raise('tea', '1' as never)).rejects.toBeInstanceOf(LockOptionsError);
    await expect(fence.raise('tea', 2 ** 53)).rejects.toBeInstanceOf(LockOptionsError);
    await expect(fence.write('tea', 1, null as never)).rejects.toBeInstanceOf(LockOptionsError);
    await expect(fence.write('tea', 1, 'x', { ttlMs: 0 })).rejects.toBeInstanceOf(LockOptionsError);
    expect(() => new RedisFence(client, { keyPrefix: 'a{b' })).toThrow(LockOptionsError);
    expect(() => new RedisFence(client, { rememberMs: 0 })).toThrow(LockOptionsError);
    const wrong = ['redis://a', undefined, { url: 'redis://a' }, Promise.resolve(client), createClientPool()];
    for (const each of wrong) expect(() => new RedisFence(each as never)).toThrow('needs a client of ioredis');
    expect(await redis.keys()).toEqual([]);
  });

  it('works with clients of node-redis, for one server and for a Cluster', async () => {
    const rootNodes = (await starting).nodes.map(({ url }) => ({ url }));
    const clients = [createClient({ url: redis.url }), createCluster({ rootNodes })];
    for (const client of clients) {
      client.on('error', () => {});
      await client.connect();
      onTestFinished(() => client.destroy());
      const fence = new RedisFence(client);
      for (const key of ['tea', 'coffee', 'biscuits', '{x}']) {
        await fence.write(key, 34, key);
        await expect(fence.write(key, 33, 'late')).rejects.toBeInstanceOf(StaleTokenError);
        expect(await fence.read(key)).toBe(key);
        expect(await fence.read('nothing')).toBeNull();
      }
    }
    await redis.command('SCRIPT', 'FLUSH');
    expect(await new RedisFence(clients[0]!).raise('tea', 35)).toBe(true);
    expect(await redis.command('GET', 'fenced:{tea}:token')).toBe('35');
  });
});
