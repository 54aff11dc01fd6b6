import { createHash } from 'node:crypto';

/** A Lua script that does one operation, on one lock or on many in one call. */
export interface Script {
  name: string;
  source: string;
  sha: string;
  /** What is sent together goes in this order: what is given back is free before others ask for it. */
  order: number;
  /** How many locks one call is for at most. */
  locksPerCall: number;
}

/** What a script is made of. */
export interface ScriptDefinition {
  name: string;
  order: number;
  /** By default small enough that the answers to a part of many are read while the server is at work on the rest. */
  locksPerCall?: number;
  /** Names of the KEYS of one lock. */
  keys: readonly string[];
  /** Names of the ARGV of one lock. */
  args: readonly string[];
  /**
   * Body of a Lua function of those names, which must return on each way, and must not throw: in a batch that would be
   * the end of the others. May keep the server's time in `us`, which is nil at first.
   */
  body: string;
}

/**
 * For one lock the script replies as the body returns; for several with a list of that. One alone is by far the most
 * frequent, and spared the list and the function, which Redis would make anew for each call.
 */
export function defineScript(definition: ScriptDefinition): Script {
  const { name, order, locksPerCall = 50, keys, args } = definition;
  const values = (index: string) =>
    [...picked('KEYS', keys.length, index), ...picked('ARGV', args.length, index)].join(', ');
  const names = [...keys, ...args].join(', ');
  const body = definition.body.trim();
  const source = [
    'local us',
    `if #KEYS == ${keys.length} then`,
    `  local ${names} = ${values('')}`,
    `  ${body}`,
    'end',
    `local function each(${names})`,
    `  ${body}`,
    'end',
    'local replies = {}',
    `for i = 0, #KEYS / ${keys.length} - 1 do`,
    `  replies[i + 1] = each(${values('i')})`,
    'end',
    'return replies',
  ].join('\n');
  const sha = createHash('sha1').update(source).digest('hex');
  return { name, source, sha, order, locksPerCall };
}

/** `KEYS[1], KEYS[2]`; of the lock with an index `KEYS[2 * i + 1], KEYS[2 * i + 2]`. */
function picked(list: string, count: number, index: string): string[] {
  return Array.from({ length: count }, (_, at) => `${list}[${index && `${count} * ${index} + `}${at + 1}]`);
}
