import { isIoredisClient, isNodeRedisClient, isNodeRedisOptions } from '../client/check-source.js';
import type { RedisDriver } from '../client/redis-client.js';
import type { RedisOptions } from '../client/source.js';
import { IoredisAdapter } from './ioredis-adapter.js';
import { loadIoredis } from './ioredis.js';

/**
 * Options of the clients that this library makes. A command fails as soon as its connection breaks, and the client does not
 * send it again, because a late acquire would leave an orphan; the backend decides what is retried.
 */
const OWN_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: true, // with 0 retries all fail at the first close; `false` would never settle them
  maxRetriesPerRequest: 0,
  connectTimeout: 2_000,
  sentinelCommandTimeout: 2_000, // or a Sentinel that hangs would be waited for without end, also by a client that was closed
  disconnectTimeout: 100, // or the process would live for 2 s after a close while Redis is down
  maxLoadingRetryTime: 2_000, // while it loads its data it is asked that often, or it would count as silent
  retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
} satisfies RedisOptions;

/** ioredis 5.4 or later: a client for one server, for a master that Sentinel names, or for a Cluster. */
export const ioredis: RedisDriver = {
  owns: (source) =>
    isIoredisClient(source) ||
    (typeof source === 'object' && !isNodeRedisClient(source) && !isNodeRedisOptions(source)),
  load: loadIoredis,
  open: async (source, clientName, isOwned = false) => {
    const { Redis } = await loadIoredis();
    if (isIoredisClient(source)) return new IoredisAdapter(source, isOwned);
    const own = { ...OWN_OPTIONS, connectionName: clientName };
    const client =
      typeof source === 'string' ? new Redis(source, own) : new Redis({ ...own, ...(source as RedisOptions) });
    return new IoredisAdapter(client, true);
  },
};
