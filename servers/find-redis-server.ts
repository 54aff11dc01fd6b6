import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackServer, type PackagedServer } from './unpack-server.js';

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
  const path = chosen || firstIn([...foldersOnPath(), privateFolder()], 'redis-server');
  return path === undefined ? undefined : binary(path);
}

/**
 * Finds redis-server, or else unpacks a private copy from the distribution's packages into `.redis/`.
 * Needs no root, installs nothing, and may run in two processes at once.
 */
export async function provideRedisServer(): Promise<RedisBinary> {
  const found = findRedisServer();
  if (found) return found;
  const advice =
    'install it (`apt-get install redis-server`, `brew install redis`) or set REDIS_SERVER=/path/to/redis-server';
  await unpack(privateFolder(), { executable: 'redis-server' }, 'on the PATH or in .redis/', advice);
  return findRedisServer()!;
}

/** A kind of server beside the redis-server of the system, for `npm run test:servers`. */
export interface OtherServer extends PackagedServer {
  /** The name of its folder in `.redis/`. */
  readonly name: string;
}

/**
 * Finds another kind of server on the `PATH` or in its folder, or else unpacks it there. One of a suite of its own is looked for
 * in the folder only.
 */
export async function provideServer(server: OtherServer): Promise<RedisBinary> {
  const { name, executable, suite } = server;
  const own = join(privateFolder(), name);
  const isNewer = suite !== undefined && suite !== 'backports';
  const found = firstIn([...(isNewer ? [] : foldersOnPath()), own], executable);
  if (found !== undefined) return binary(found);
  const place = isNewer ? `in .redis/${name}/` : `on the PATH or in .redis/${name}/`;
  const advice = isNewer
    ? `put one into .redis/${name}/, with the libraries that it needs`
    : `install it (\`apt-get install ${executable}\`), or put one into .redis/${name}/`;
  await unpack(own, server, place, advice);
  return binary(join(own, executable));
}

/** @param place where it was looked for, in words; `advice` is what to do without it */
async function unpack(folder: string, server: PackagedServer, place: string, advice: string): Promise<void> {
  try {
    await unpackServer(folder, server);
  } catch (cause) {
    const problem = `No ${server.executable} ${place}, and none could be unpacked by apt-get and dpkg (${firstError(cause)})`;
    throw new Error(`${problem}: ${advice}.`, { cause });
  }
}

/** With the C locale: from 7.2 on, Redis refuses to start under a locale that is not installed. */
function binary(path: string): RedisBinary {
  return { path, env: { ...process.env, LC_ALL: 'C' } };
}

export function foldersOnPath(): string[] {
  return (process.env.PATH ?? '').split(delimiter).filter(Boolean);
}

export function firstIn(folders: readonly string[], executable: string): string | undefined {
  return folders.map((folder) => join(folder, executable)).find(isExecutable);
}

function privateFolder(): string {
  return ownFolder('.redis');
}

/** A folder beside package-lock.json, wherever this file was compiled to. */
export function ownFolder(name: string): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package-lock.json')) && folder !== dirname(folder)) folder = dirname(folder);
  return join(folder, name);
}

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** apt prefixes what went wrong with "E:"; the rest of its output would hide it. */
export function firstError(cause: unknown): string {
  const { stderr = '', message } = cause as { stderr?: string; message: string };
  return (/^E: .*$/m.exec(stderr)?.[0] ?? message.split('\n')[0] ?? message).trim().replace(/\.$/, '');
}
