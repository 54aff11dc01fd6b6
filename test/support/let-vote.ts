import type { RedisServer } from './redis-server.js';

/** Makes new nodes of a Redlock vote at once, like nodes that have been up for long. */
export async function letVote<Servers extends readonly RedisServer[]>(servers: Servers): Promise<Servers> {
  for (const server of servers) {
    const run = /run_id:(\w+)/.exec(String(await server.command('INFO', 'server')))![1]!;
    await server.command('SET', 'lock:admission', `1 20 ${run}`);
  }
  return servers;
}
