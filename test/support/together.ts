import { INSPECT } from '../../lib/stores/redis/scripts/lua.js';
import type { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { runScript } from './run-script.js';

/** Sends one more command while something else is in flight: so all requests travel together. */
export function together<T>(runner: ScriptRunner, ask: () => T): T {
  runScript(runner, INSPECT, ['{busy}', '{busy}:queue', '{busy}:calls'], []).catch(() => {}); // it may hang, or be forbidden
  return ask();
}
