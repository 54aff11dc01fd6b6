import { createHash } from 'node:crypto';
import type { RedisLockSettings, Script } from './library.js';

export type Library = typeof import('./library.js');

/** The library broken in one way, on Redis. */
export interface Mutant {
  what: string;
  /**
   * Breaks the library where it is loaded, before locks are opened. It stays broken, so this needs its own process or
   * copy.
   */
  inject?: (library: Library) => void;
  options?: RedisLockSettings;
  /**
   * Number of nodes of the topology.
   * @default 1
   */
  nodes?: number;
}

/**
 * Makes a script call Redis through a function of its own.
 * @param body Lua that may return a reply instead of Redis: it has the `command`, its arguments `...`, and `call`,
 * which sends one
 */
export function interceptCommands(script: Script, body: string): void {
  replaceSource(
    script,
    `
local server = redis
local function intercept(call, command, ...)
  ${body}
  return call(command, ...)
end
local redis = {
  call = function(...) return intercept(server.call, ...) end,
  pcall = function(...) return intercept(server.pcall, ...) end,
}
${script.source}`,
  );
}

export function replaceSource(script: Script, source: string): void {
  script.source = source;
  script.sha = createHash('sha1').update(source).digest('hex');
}

/**
 * Makes scripts do one thing differently.
 * @param part of their source, once or several times
 */
export function replacePart(scripts: readonly Script[], part: string, by: string): void {
  for (const script of scripts) {
    if (!script.source.includes(part)) throw new Error(`Script ${script.name} has no ${JSON.stringify(part)}.`);
    replaceSource(script, script.source.replaceAll(part, by));
  }
}
