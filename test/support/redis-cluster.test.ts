import { Cluster } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { RedisCluster } from './redis-cluster.js';

describe('RedisCluster', () => {
  it('serves a key on each node', async () => {
    const cluster = await RedisCluster.start(3);
    const redis = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
    try {
      await Promise.all(['a', 'b', 'c'].map((key) => redis.set(key, 'value')));
      expect(await Promise.all(cluster.nodes.map((node) => node.keys()))).toEqual([['b'], ['c'], ['a']]);
    } finally {
      redis.disconnect();
      await cluster.stop();
    }
  });
});
