import { isIoredisClient, isNodeRedisClient, isNodeRedisOptions } from '../client/check-source.js';
import type { RedisDriver } from '../client/redis-client.js';
import type { RedisOptions } from '../client/source.js';
import { IoredisAdapter } from './ioredis-adapter.js';
import { loadIoredis } from './ioredis.js';

/**
 * Options of the clients that this library creates. A command fails as soon as its connection breaks, and the client does not resend it:
 * a late acquire would leave an orphan lock. The backend decides what to retry.
 */
const OWN_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: true, // with 0 retries, open commands fail at the first close; with `false` they would never settle
  maxRetriesPerRequest: 0,
  connectTimeout: 2_000,
  sentinelCommandTimeout: 2_000, // otherwise a client waits forever for a Sentinel that hangs, even after it was closed
  disconnectTimeout: 100, // otherwise the process lives for another 2 s after a close while Redis is down
  maxLoadingRetryTime: 2_000, // how often it asks a server that is loading its data, which must not count as silent
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
