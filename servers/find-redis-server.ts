import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackRedisServer } from './unpack-server.js';

/** What `spawn` needs to start a Redis server. */
export interface RedisBinary {
  readonly path: string;
  /** With the C locale: from 7.2 on, Redis refuses to start under a locale that is not installed. */
  readonly env: NodeJS.ProcessEnv;
}

/** The first redis-server of: `REDIS_SERVER`, `PATH`, the private copy in `.redis/`. */
export function findRedisServer(): RedisBinary | undefined {
  const chosen = process.env.REDIS_SERVER;
  if (chosen && !isExecutable(chosen)) {
    throw new Error(`REDIS_SERVER must name an executable file, got "${chosen}": correct or unset it.`);
  }
  const onPath = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  const path = chosen || [...onPath, privateFolder()].map((folder) => join(folder, 'redis-server')).find(isExecutable);
  return path === undefined ? undefined : { path, env: { ...process.env, LC_ALL: 'C' } };
}

/**
 * Finds redis-server, or else unpacks a private copy from the distribution's packages into `.redis/`.
 * Needs no root, installs nothing, and may run in two processes at once.
 */
export async function provideRedisServer(): Promise<RedisBinary> {
  const found = findRedisServer();
  if (found) return found;
  try {
    await unpackRedisServer(privateFolder());
  } catch (cause) {
    throw new Error(
      `No redis-server on the PATH or in .redis/, and none could be unpacked by apt-get and dpkg (${firstError(cause)}): ` +
        'install it (`apt-get install redis-server`, `brew install redis`) or set REDIS_SERVER=/path/to/redis-server.',
      { cause },
    );
  }
  return findRedisServer()!;
}

/** `.redis/` beside package-lock.json, wherever this file was compiled to. */
function privateFolder(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package-lock.json')) && folder !== dirname(folder)) folder = dirname(folder);
  return join(folder, '.redis');
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** apt prefixes what went wrong with "E:"; the rest of its output would hide it. */
function firstError(cause: unknown): string {
  const { stderr = '', message } = cause as { stderr?: string; message: string };
  return (/^E: .*$/m.exec(stderr)?.[0] ?? message.split('\n')[0] ?? message).trim().replace(/\.$/, '');
}
