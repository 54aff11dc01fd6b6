import { providePostgres } from '../servers/find-postgres.js';
import { provideRedisServer } from '../servers/find-redis-server.js';
import { archiveOfPGlite } from './support/prepared-pglite.js';

/** Runs once, before the forks start, so that all of them inherit the same server programs, and find the files of a PGlite. */
export async function setup(): Promise<void> {
  const [redis, postgres] = await Promise.all([provideRedisServer(), providePostgres(), archiveOfPGlite()]);
  process.env.REDIS_SERVER = redis.path;
  process.env.POSTGRES_SERVER = postgres;
}
