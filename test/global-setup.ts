import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { providePostgres } from '../servers/find-postgres.js';
import { provideRedisServer } from '../servers/find-redis-server.js';

/**
 * Runs once, before the forks start, so that all of them inherit the same server programs, and the folder of all
 * servers of PostgreSQL.
 * @returns what ends the run
 */
export async function setup(): Promise<() => Promise<void>> {
  const [redis, postgres] = await Promise.all([provideRedisServer(), providePostgres()]);
  const files = await mkdtemp(join(tmpdir(), 'postgres-'));
  await chmod(files, 0o711); // the servers may run as another user
  Object.assign(process.env, { REDIS_SERVER: redis.path, POSTGRES_SERVER: postgres, POSTGRES_FILES: files });
  return () => rm(files, { recursive: true, force: true, maxRetries: 5 });
}
