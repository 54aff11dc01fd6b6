import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

const finder = fileURLToPath(new URL('../servers/find-redis-server.ts', import.meta.url));

/** Finds or unpacks the server that the tests use, too, and names it to this process and those that it starts. */
export async function provideRedisServer() {
  const { module } = await runnerImport(finder, { configFile: false });
  process.env.REDIS_SERVER = (await module.provideRedisServer()).path;
}
