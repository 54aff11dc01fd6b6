import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { ioredis } from '../../lib/stores/redis/ioredis/ioredis-driver.js';
import { nodeRedis } from '../../lib/stores/redis/node-redis/node-redis-driver.js';
import type { Package } from './describe-adapter.js';

/** The packages for Redis, by their names. */
export const PACKAGES: Record<string, Package> = {
  ioredis: {
    driver: ioredis,
    clientOf: (url) => ioredisClient(new Redis(url, { lazyConnect: true })),
    clusterOf: (urls) => ioredisClient(new Cluster(urls, { lazyConnect: true })),
    withPrefix: (url, keyPrefix) => ({ host: new URL(url).hostname, port: Number(new URL(url).port), keyPrefix }),
  },
  'node-redis': {
    driver: nodeRedis,
    clientOf: (url) => nodeRedisClient(createClient({ url })),
    clusterOf: (urls) => nodeRedisClient(createCluster({ rootNodes: urls.map((url) => ({ url })) })),
    withPrefix: (url, keyPrefix) => ({ url, keyPrefix }),
  },
};

function ioredisClient(client: Redis | Cluster) {
  client.on('error', () => {}); // otherwise it would be printed
  return { client, close: () => client.disconnect() };
}

interface Destroyable {
  readonly isOpen: boolean;
  on(event: 'error', listener: () => void): unknown;
  destroy(): unknown;
}

function nodeRedisClient(client: Destroyable) {
  client.on('error', () => {}); // otherwise it would be thrown
  return { client, close: () => void (client.isOpen && client.destroy()) }; // node-redis 5 throws where the error was created
}
