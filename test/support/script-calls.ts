import {
  ACQUIRE,
  ACQUIRE_TOGETHER,
  EXTEND,
  EXTEND_AND_REPORT,
  EXTEND_TOGETHER,
  FORCE_RELEASE,
  INSPECT,
  KEEP,
  RELEASE,
  TURN,
  WITHDRAW,
} from '../../lib/stores/redis/scripts/lua.js';
import type { RedisServer } from './redis-server.js';

/** The number of script calls that the server got since its start or `resetCalls`: the requests of the library. */
export async function scriptCalls(server: RedisServer): Promise<number> {
  const { evalsha = 0, eval: evaluated = 0 } = await server.calls();
  return evalsha + evaluated;
}

/** From here on no operation takes a second call for a script that the server does not know. */
export async function loadScripts(server: RedisServer): Promise<void> {
  for (const script of [
    ACQUIRE,
    TURN,
    ACQUIRE_TOGETHER,
    EXTEND,
    EXTEND_AND_REPORT,
    EXTEND_TOGETHER,
    INSPECT,
    KEEP,
    RELEASE,
    WITHDRAW,
    FORCE_RELEASE,
  ]) {
    await server.command('SCRIPT', 'LOAD', script.source);
  }
}
