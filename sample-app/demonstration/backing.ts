import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import { findRedisServer } from '../../servers/find-redis-server.js';
import { RedisServer } from '../../test/support/redis-server.js';

/** What keeps the locks of the shop. */
export interface Backing {
  readonly kind: 'redis' | 'memory';
  /** Where that is, for a person. */
  readonly description: string;
  readonly instances: number;
  /** What an instance is told. */
  readonly env: Record<string, string>;
  close(): Promise<void>;
}

const INSTANCES = 3;

/** The Redis of `REDIS_URL`, or one that is started here, or the memory of a single instance. */
export async function openBacking(wantsMemory: boolean): Promise<Backing> {
  if (wantsMemory) return memory('as --memory asks for');
  const url = process.env.REDIS_URL;
  if (url) {
    await checkReachable(url);
    return redis(url, `Redis at ${withoutCredentials(url)}, from REDIS_URL`, async () => {});
  }
  if (!findRedisServer()) {
    return memory('since no redis-server was found: install one (`apt-get install redis-server`), or set REDIS_URL');
  }
  const server = await RedisServer.start({ args: ['--appendonly', 'yes'] }); // or the shop would be warned at its start
  return redis(server.url, `Redis, started for this run on port ${server.port}`, () => server.stop());
}

function redis(url: string, description: string, close: () => Promise<void>): Backing {
  // Two runs on one Redis do not get into each other's way.
  const env = { REDIS_URL: url, LOCKS: 'redis', LOCK_PREFIX: `shop-${randomBytes(4).toString('hex')}` };
  return { kind: 'redis', description, instances: INSTANCES, env, close };
}

function memory(why: string): Backing {
  const description = `memory of one process, ${why}`;
  return { kind: 'memory', description, instances: 1, env: { LOCKS: 'memory' }, close: async () => {} };
}

/** One sentence here is better than three instances that fail to start. */
async function checkReachable(url: string): Promise<void> {
  const client = new Redis(url, {
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectTimeout: 3_000,
    // ioredis would keep the process for two seconds after a connection that was refused.
    disconnectTimeout: 0,
  });
  let problem: Error | undefined;
  client.on('error', (error) => (problem = error));
  try {
    await client.ping();
  } catch (error) {
    const { message } = problem ?? (error as Error);
    throw new Error(`the Redis of REDIS_URL, ${withoutCredentials(url)}, cannot be used (${message}).`);
  } finally {
    client.disconnect();
  }
}

function withoutCredentials(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'its address';
}
