import type { IoredisClient } from '../../lib/index.js';
import type { RedisClient } from '../../lib/stores/redis/client/redis-client.js';
import { IoredisAdapter } from '../../lib/stores/redis/ioredis/ioredis-adapter.js';

/** A client of ioredis that was passed in, as the library uses it. */
export function portOf(client: IoredisClient): RedisClient {
  return new IoredisAdapter(client);
}
