import type { Reply } from '../../lib/stores/redis/scripts/command.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import type { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';

/**
 * @returns what the script answered for this operation
 * @throws ScriptFault when it has no answer
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
