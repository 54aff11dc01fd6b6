import type { Reply, ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';

/**
 * @returns the answer of the script for this operation
 * @throws ScriptFault if it has no answer
 */
export function runScript(
  runner: ScriptRunner,
  script: Script,
  keys: readonly string[],
  args: readonly (string | number)[],
): Promise<Reply> {
  return runner.ask(script, keys, args, (answer) => {
    if (answer instanceof ScriptFault) throw answer;
    return answer;
  });
}
