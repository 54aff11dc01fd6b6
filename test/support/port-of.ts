import type { IoredisClient, RedisSource } from '../../lib/index.js';
import { openClient } from '../../lib/compose/open-client.js';
import type { RedisClient } from '../../lib/stores/redis/client/redis-client.js';
import { RedisConnection } from '../../lib/stores/redis/client/redis-connection.js';
import { IoredisAdapter } from '../../lib/stores/redis/ioredis/ioredis-adapter.js';

/** A client of ioredis that was passed in, as the library uses it. */
export function portOf(client: IoredisClient): RedisClient {
  return new IoredisAdapter(client);
}

/** A connection to a Redis, made like the ones of the module. */
export async function connectionTo(source: RedisSource): Promise<RedisConnection> {
  return new RedisConnection(await openClient(source, 'nest-redis-lock', 1_000), 'nest-redis-lock', 1_000);
}
