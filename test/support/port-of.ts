import { IoredisAdapter } from '../../lib/stores/redis/ioredis/ioredis-client.js';
import type { RedisClient } from '../../lib/stores/redis/client/redis-client.js';
import type { IoredisClient } from '../../lib/stores/redis/client/source.js';

/** A client of ioredis that was handed in, as the library uses it. */
export function portOf(client: IoredisClient): RedisClient {
  return new IoredisAdapter(client);
}
