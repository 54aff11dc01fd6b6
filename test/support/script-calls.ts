import * as scripts from '../../lib/stores/redis/scripts/lua.js';
import type { RedisServer } from './redis-server.js';

/** The number of script calls that the server got since its start or `resetCalls`: the requests of the library. */
export async function scriptCalls(server: RedisServer): Promise<number> {
  const { evalsha = 0, eval: evaluated = 0 } = await server.calls();
  return evalsha + evaluated;
}

/** From here on no operation takes a second call for a script that the server does not know. */
export async function loadScripts(server: RedisServer): Promise<void> {
  for (const { source } of Object.values(scripts)) await server.command('SCRIPT', 'LOAD', source);
}
