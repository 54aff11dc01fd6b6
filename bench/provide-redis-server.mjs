import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

const finder = fileURLToPath(new URL('../servers/find-redis-server.ts', import.meta.url));

/** Finds or unpacks the server that the tests also use, and names it to this process and its children. */
export async function provideRedisServer() {
  const { module } = await runnerImport(finder, { configFile: false });
  process.env.REDIS_SERVER = (await module.provideRedisServer()).path;
}
