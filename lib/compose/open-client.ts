import { checkMade } from '../stores/redis/client/check-source.js';
import type { RedisClient } from '../stores/redis/client/redis-client.js';
import type { RedisSource } from '../stores/redis/client/source.js';
import { ioredis } from '../stores/redis/ioredis/ioredis-driver.js';

/**
 * Opens a client; connects to nothing yet.
 * @param clientName the name in `CLIENT LIST` of a client that is made here, unless its options have one
 * @throws LockOptionsError when the package that it takes is not installed
 * @throws what the user's function throws
 */
export async function openClient(source: RedisSource, clientName: string): Promise<RedisClient> {
  if (typeof source !== 'function') return ioredis.open(source, clientName);
  const made: unknown = await source();
  checkMade(made);
  return ioredis.open(made, clientName, true);
}
