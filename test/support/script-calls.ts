import type { RedisServer } from './redis-server.js';

/** How many script calls the server got since its start or `resetCalls`: what the library asked of it. */
export async function scriptCalls(server: RedisServer): Promise<number> {
  const { evalsha = 0, eval: evaluated = 0 } = await server.calls();
  return evalsha + evaluated;
}
