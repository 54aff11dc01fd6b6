import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { chown, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { candidatePort } from './candidate-port.js';
import { providePostgres } from './find-postgres.js';
import { killWithParent } from './kill-with-parent.js';

const run = promisify(execFile);

export interface LaunchPostgresOptions {
  /** A folder of its own, where it keeps its files. */
  readonly dir: string;
  /** Default: any free one. */
  readonly port?: number;
  /** Further settings, such as `{ fsync: 'on' }`; they override the defaults: no write waits for the disk. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface LaunchedPostgres {
  readonly process: ChildProcess;
  readonly port: number;
}

/** Whom the server runs as where this process is root, as which it refuses to run: `nobody`. */
export const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/**
 * Starts a PostgreSQL on 127.0.0.1, whose user `postgres` needs no password. It dies with this process however this process ends.
 * @returns when it accepts connections
 */
export async function launchPostgres({ dir, port, settings = {} }: LaunchPostgresOptions): Promise<LaunchedPostgres> {
  const postgres = await providePostgres();
  const data = join(dir, 'data');
  await mkdir(data, { recursive: true, mode: 0o700 }).then(async (made) => {
    if (NOBODY.uid !== undefined) for (const folder of [dir, data]) await chown(folder, NOBODY.uid, NOBODY.gid);
    if (made !== undefined) await initialise(postgres, data);
  });
  const all = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    fsync: 'off',
    max_connections: '200',
    dynamic_shared_memory_type: 'mmap',
    ...settings,
  };
  const args = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  for (;;) {
    const candidate = port ?? (await candidatePort());
    const child = start(postgres, ['-D', data, '-p', String(candidate), ...args]);
    killWithParent(child);
    try {
      await ready(child);
      return { process: child, port: candidate };
    } catch (error) {
      if (port === undefined && String(error).includes('Address already in use')) continue;
      throw error;
    }
  }
}

async function initialise(postgres: string, data: string): Promise<void> {
  const args = ['-D', data, '-U', 'postgres', '--auth=trust', '-E', 'UTF8', '--locale=C', '--no-sync'];
  await run(join(dirname(postgres), 'initdb'), args, { ...NOBODY, cwd: data });
}

function start(postgres: string, args: readonly string[]): ChildProcess {
  return spawn(postgres, args, {
    ...NOBODY,
    cwd: args[1],
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, LC_ALL: 'C' },
  });
}

function ready(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = '';
    const read = (text: string): void => {
      output += text;
      if (!/ready to accept (read[- ]only )?connections/.test(output)) return;
      child.stderr!.off('data', read).resume();
      resolve();
    };
    child.stdout!.resume();
    child.stderr!.setEncoding('utf8').on('data', read);
    child.once('error', reject);
    child.once('close', () => reject(new Error(`postgres ended before it was ready, it printed:\n${output}`)));
  });
}
