import { createHash } from 'node:crypto';

/** A Lua script that performs one operation on any number of locks in one call. */
export interface Script {
  name: string;
  source: string;
  sha: string;
  /** How many KEYS each lock takes. */
  keysPerOperation: number;
  /** Scripts of one tick are sent in this order: what is given back is free before others ask for it. */
  order: number;
}

export function defineScript(definition: Omit<Script, 'sha'>): Script {
  const source = definition.source.trim();
  return { ...definition, source, sha: createHash('sha1').update(source).digest('hex') };
}
