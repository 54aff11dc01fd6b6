import { Cluster, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster } from 'redis';
import { LockKeyError, LockOptionsError, RedisFence, StaleTokenError } from 'nest-redis-lock';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { randomOf } from '../support/random.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';

const MAX = Number.MAX_SAFE_INTEGER;

let redis: RedisServer;
/** It gets ready while the other tests run. */
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
  const client = new Redis(redis.port, '127.0.0.1', { retryStrategy: () => null, maxRetriesPerRequest: 0, ...options });
  client.on('error', () => {});
  onTestFinished(() => client.disconnect());
  return client;
}

describe('a naive check in Redis', () => {
  it('lets a late writer through when a newer one comes between its two commands', async () => {
    const client = connect();
    const checked = async (token: number) => Number((await client.get('fence')) ?? 0) <= token;
    expect(await checked(33)).toBe(true);
    expect(await checked(34)).toBe(true);
    await client.mset('fence', 34, 'value', 'new');
    await client.mset('fence', 33, 'value', 'late');
    expect(await client.get('value')).toBe('late');
  });
});

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

  it('writes what has no value yet only with the token that its key remembers', async () => {
    const fence = new RedisFence(connect());
    expect(await fence.read('tea')).toBeNull();
    expect(await fence.raise('tea', 34)).toBe(true);
    await expect(fence.write('tea', 33, 'late')).rejects.toThrow('33 of lock "tea" is too old');
    expect(await fence.read('tea')).toBeNull();
  });

  it('has a fence for each key', async () => {
    const fence = new RedisFence(connect());
    await fence.write('tea', 34, 'tea');
    await fence.write('coffee', 33, 'coffee');
    expect(await fence.raise('coffee', 33)).toBe(true);
    expect(await fence.raise('tea', 33)).toBe(false);
  });

  it('compares tokens as numbers, up to the largest, and keeps all of their digits', async () => {
    const fence = new RedisFence(connect());
    expect(await fence.raise('tea', 9)).toBe(true);
    expect(await fence.raise('tea', 10)).toBe(true);
    expect(await fence.raise('tea', 9)).toBe(false);
    expect(await fence.raise('tea', MAX - 1)).toBe(true);
    expect(await fence.raise('tea', MAX)).toBe(true);
    expect(await fence.raise('tea', MAX - 1)).toBe(false);
    expect(await redis.command('GET', 'fenced:{tea}:token')).toBe(String(MAX));
    await expect(fence.write('tea', MAX - 1, 'late')).rejects.toMatchObject({ seen: MAX });
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
    expect(refused).toBeGreaterThan(300); // a shuffled list has few records
    expect(refused).toBeLessThan(400);
  });

  it('survives the loss of the script cache, and costs one command', async () => {
    const fence = new RedisFence(connect({ enableReadyCheck: false, disableClientInfo: true, protocol: 2 }));
    await fence.raise('tea', 1);
    await redis.command('SCRIPT', 'FLUSH');
    expect(await fence.raise('tea', 2)).toBe(true);
    await redis.resetCalls();
    expect(await fence.raise('tea', 1)).toBe(false);
    expect(await redis.calls()).toMatchObject({ evalsha: 1 });
    expect(await redis.calls()).not.toHaveProperty('eval');
  });

  it('remembers a token for a day, and for as long as its value', async () => {
    const fence = new RedisFence(connect());
    const ttl = async (key: string) => Number(await redis.command('PTTL', key));
    await fence.raise('seen', 1);
    expect(await ttl('fenced:{seen}:token')).toBeGreaterThan(86_390_000);
    await fence.write('short', 1, 'x', { ttlMs: 5_000 });
    expect(await ttl('fenced:{short}:value')).toBeLessThanOrEqual(5_000);
    expect(await ttl('fenced:{short}:token')).toBeGreaterThan(86_390_000);
    await fence.write('long', 1, 'x', { ttlMs: 100_000_000 });
    expect(await ttl('fenced:{long}:token')).toBeGreaterThan(99_000_000);
    await fence.raise('long', 2);
    expect(await ttl('fenced:{long}:token')).toBeGreaterThan(99_000_000);
    await fence.write('ever', 1, 'x');
    await fence.raise('ever', 2);
    expect([await ttl('fenced:{ever}:value'), await ttl('fenced:{ever}:token')]).toEqual([-1, -1]);
  });

  it('forgets a token after the time it is told to', async () => {
    const fence = new RedisFence(connect(), { rememberMs: 60_000 });
    await fence.raise('tea', 1);
    const left = Number(await redis.command('PTTL', 'fenced:{tea}:token'));
    expect(left).toBeGreaterThan(50_000);
    expect(left).toBeLessThanOrEqual(60_000);
  });

  it('keeps its keys apart from those of the lock, under its own prefix', async () => {
    await new RedisFence(connect(), { keyPrefix: 'lock' }).write('tea', 1, 'x');
    expect(await redis.keys()).toEqual(['lock:{tea}:token', 'lock:{tea}:value']);
  });

  it('leaves the client as it was handed', async () => {
    const client = connect();
    await client.ping();
    const form = () => [
      Object.keys(client).sort(),
      client.eventNames().map((name) => [name, client.listenerCount(name)]),
    ];
    const before = form();
    await new RedisFence(client).write('tea', 1, 'x');
    expect(form()).toEqual(before);
    expect(client.status).toBe('ready');
  });

  it('works with clients that give numbers as strings', async () => {
    const fence = new RedisFence(connect({ stringNumbers: true }));
    expect(await fence.raise('tea', 2)).toBe(true);
    expect(await fence.raise('tea', 1)).toBe(false);
  });

  it('passes nobody where something else stands in the place of the token', async () => {
    const fence = new RedisFence(connect());
    await redis.command('SET', 'fenced:{tea}:token', 'surely not');
    await expect(fence.write('tea', 1, 'x')).rejects.toThrow('not a number');
    await redis.command('DEL', 'fenced:{tea}:token');
    await redis.command('LPUSH', 'fenced:{tea}:token', '1');
    await expect(fence.raise('tea', 1)).rejects.toThrow('WRONGTYPE');
    expect(await fence.read('tea')).toBeNull();
  });

  it('passes nobody when Redis is gone', async () => {
    const gone = await RedisServer.start();
    const client = new Redis(gone.port, '127.0.0.1', { retryStrategy: () => null, maxRetriesPerRequest: 0 });
    client.on('error', () => {});
    const fence = new RedisFence(client);
    await fence.raise('tea', 1);
    await gone.stop();
    await expect(fence.raise('tea', 2)).rejects.toThrow();
    await expect(fence.write('tea', 2, 'x')).rejects.not.toBeInstanceOf(StaleTokenError);
  });

  it('passes nobody on an answer that it does not know', async () => {
    const client = { evalsha: async () => 'QUEUED', options: {}, status: 'ready' };
    await expect(new RedisFence(client as never).raise('tea', 1)).rejects.toThrow('answered unexpectedly');
  });

  it('refuses what cannot be meant', async () => {
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

  it('works on a Cluster', async () => {
    const nodes = (await starting).nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const client = new Cluster(nodes);
    onTestFinished(() => client.disconnect());
    const fence = new RedisFence(client);
    for (const key of ['tea', 'coffee', 'biscuits', '{x}']) {
      await fence.write(key, 34, key);
      await expect(fence.write(key, 33, 'late')).rejects.toBeInstanceOf(StaleTokenError);
      expect(await fence.read(key)).toBe(key);
    }
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
