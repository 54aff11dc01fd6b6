import { execFile, spawn } from 'node:child_process';
import { chown, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { providePostgres } from './find-postgres.js';
import { launchServer, type LaunchedServer } from './launch-server.js';

const run = promisify(execFile);

export interface LaunchPostgresOptions {
  /** A folder of its own, where it keeps its files. */
  readonly dir: string;
  /** Default: any free one. */
  readonly port?: number;
  /** Further settings, such as `{ fsync: 'on' }`; they override the defaults: no write waits for the disk. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** Whom the server runs as where this process is root, as which it refuses to run: `nobody`. */
export const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/**
 * Starts a PostgreSQL on 127.0.0.1, whose user `postgres` needs no password. It dies with this process however this process ends.
 * @returns when it accepts connections
 */
export async function launchPostgres({ dir, port, settings = {} }: LaunchPostgresOptions): Promise<LaunchedServer> {
  const postgres = await providePostgres();
  const data = await initialisePostgres(dir);
  const all = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    fsync: 'off',
    max_connections: '200',
    dynamic_shared_memory_type: 'mmap',
    ...settings,
  };
  const args = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const program = {
    name: 'postgres',
    readyText: /ready to accept (read[- ]only )?connections/,
    start: (on: number) =>
      spawn(postgres, ['-D', data, '-p', String(on), ...args], {
        ...NOBODY,
        cwd: data,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, LC_ALL: 'C' },
      }),
  };
  return launchServer(program, port);
}

/**
 * Makes the files of a new server, unless they are there.
 * @param dir a folder of its own, which the user of the server owns afterwards
 * @returns the folder in it that has the files
 */
export async function initialisePostgres(dir: string): Promise<string> {
  const data = join(dir, 'data');
  const made = await mkdir(data, { recursive: true, mode: 0o700 });
  if (NOBODY.uid !== undefined) for (const folder of [dir, data]) await chown(folder, NOBODY.uid, NOBODY.gid);
  if (made === undefined) return data;
  const args = ['-D', data, '-U', 'postgres', '--auth=trust', '-E', 'UTF8', '--locale=C', '--no-sync'];
  await run(join(dirname(await providePostgres()), 'initdb'), args, { ...NOBODY, cwd: data });
  return data;
}
