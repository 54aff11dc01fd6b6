import { LockOptionsError } from '../api/errors.js';
import { inTime } from '../core/time/time-limit.js';
import { checkMade } from '../stores/redis/client/check-source.js';
import type { RedisClient, RedisDriver } from '../stores/redis/client/redis-client.js';
import type { RedisSource } from '../stores/redis/client/source.js';
import { ioredis } from '../stores/redis/ioredis/ioredis-driver.js';
import { nodeRedis } from '../stores/redis/node-redis/node-redis-driver.js';

/** The packages for Redis. The first one that is installed opens a URL. */
const DRIVERS: readonly RedisDriver[] = [ioredis, nodeRedis];

/**
 * Opens a client; connects to nothing yet.
 * @param clientName the name in `CLIENT LIST` of a client that is made here, unless its options have one
 * @param limitMs the time limit of the user's function, in milliseconds; undefined: none
 * @throws LockOptionsError if the package that it needs is not installed, or if the function takes too long
 * @throws what the user's function throws
 */
export async function openClient(source: RedisSource, clientName: string, limitMs?: number): Promise<RedisClient> {
  if (typeof source !== 'function') return (await driverOf(source)).open(source, clientName);
  const opening = opened(source, clientName);
  if (limitMs === undefined) return opening;
  return inTime(opening, limitMs, () => {
    opening.then((client) => client.close()).catch(() => {});
    throw new LockOptionsError(
      `A function given as a Redis source has returned no client within ${limitMs} ms (connectTimeoutMs): its promise is still pending. ` +
        'Have it return a client that is not connected yet, or find out what it waits for.',
    );
  });
}

async function opened(makeClient: () => unknown, clientName: string): Promise<RedisClient> {
  const made = await makeClient();
  checkMade(made);
  return (await driverOf(made)).open(made, clientName, true);
}

async function driverOf(source: unknown): Promise<RedisDriver> {
  return DRIVERS.find((driver) => driver.owns(source)) ?? (await firstInstalled());
}

/** Returns the package that opens a URL: ioredis if both are installed. @throws LockOptionsError if none is */
export async function firstInstalled(): Promise<RedisDriver> {
  for (const driver of DRIVERS) {
    try {
      await driver.load();
      return driver;
    } catch (error) {
      if (!(error instanceof LockOptionsError)) throw error;
    }
  }
  throw new LockOptionsError(
    'Locks on Redis need ioredis or redis (node-redis), and neither is installed: npm install ioredis, or npm install redis.',
  );
}
