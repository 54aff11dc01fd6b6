import { createHash } from 'node:crypto';

/** A Lua script that does one operation, on one lock or on many in one call. */
export interface Script {
  name: string;
  source: string;
  /** SHA-1 of the source, in hexadecimal. */
  sha: string;
  /** Commands of one tick are sent in this order. Releases go first, so that the next holders find the locks free. */
  order: number;
  /** The maximum number of locks in one call. It is small, so that answers are read while the server works on the rest. */
  locksPerCall: number;
  /** The number of keys that all locks of a call share. They come first. */
  sharedKeys: number;
  /** The number of arguments that all locks of a call share. They come first. */
  sharedArgs: number;
}

/** The parts of a script, from its file in `lua/`. */
export interface ScriptParts extends Omit<Script, 'source' | 'sha'> {
  /** The local variables for the keys of each lock. */
  keys: readonly string[];
  /** The local variables for the arguments of each lock. */
  args: readonly string[];
  /** Runs once a call. */
  head: string;
  /** Runs for each lock. */
  body: string;
  /** Whether the body is too long to appear in the source twice. */
  isLong?: boolean;
}

/**
 * Assembles a script. A call for several locks runs the body in a function, and replies with a list. Most calls are for one lock, and
 * creating the function and the list would slow them down. So the source contains the body a second time for them.
 */
export function scriptOf({ keys, args, head, body, isLong, ...script }: ScriptParts): Script {
  const { sharedKeys, sharedArgs } = script;
  const names = [...keys, ...args].join(', ');
  const values = (ofLock: (count: number) => string) =>
    [
      ...keys.map((_, at) => `KEYS[${ofLock(keys.length)}${sharedKeys + at + 1}]`),
      ...args.map((_, at) => `ARGV[${ofLock(args.length)}${sharedArgs + at + 1}]`),
    ].join(', ');
  const ofOne = values(() => '');
  const areSeveral = `#KEYS > ${sharedKeys + keys.length}`;
  const each = `local function each(${names})
${body}
end`;
  const several = `local replies = {}
for i = 0, (#KEYS - ${sharedKeys}) / ${keys.length} - 1 do
  replies[i + 1] = each(${values((count) => `${count} * i + `)})
end
return replies`;
  const runs = isLong
    ? `${each}
if ${areSeveral} then
${several}
end
return each(${ofOne})`
    : `if ${areSeveral} then
${each}
${several}
end
local ${names} = ${ofOne}
${body}`;
  const source = `${head}\n${runs}`;
  return { ...script, source, sha: createHash('sha1').update(source).digest('hex') };
}
