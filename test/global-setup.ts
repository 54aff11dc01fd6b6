import { provideRedisServer } from '../servers/find-redis-server.js';

/** Runs once, before the forks start, so that they all inherit the one server binary. */
export async function setup(): Promise<void> {
  process.env.REDIS_SERVER = (await provideRedisServer()).path;
}
