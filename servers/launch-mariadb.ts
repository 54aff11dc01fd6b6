import { execFile, spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { provideMariaDb } from './find-mariadb.js';
import { launchServer, type LaunchedServer } from './launch-server.js';

const run = promisify(execFile);

export interface LaunchMariaDbOptions {
  /** A folder of its own, where it keeps its files. */
  readonly dir: string;
  /** Default: any free one. */
  readonly port?: number;
  /** Further settings, such as `{ 'read-only': '1' }`; they override the defaults: no write waits for the disk. */
  readonly settings?: Readonly<Record<string, string>>;
}

/**
 * Starts a MariaDB on 127.0.0.1, whose user `root` needs no password. It dies with this process however this process ends.
 * @returns when it accepts connections
 */
export async function launchMariaDb({ dir, port, settings = {} }: LaunchMariaDbOptions): Promise<LaunchedServer> {
  const { server, install } = await provideMariaDb();
  const user = `--user=${userInfo().username}`;
  const data = join(dir, 'data');
  // A server that starts deletes the temporary tables of others, also one that makes the files of a new server.
  const tmpdir = join(dir, 'tmp');
  await mkdir(tmpdir, { recursive: true });
  if (await mkdir(data, { recursive: true })) {
    const args = ['--auth-root-authentication-method=normal', '--skip-test-db', `--datadir=${data}`, user];
    await run(install, ['--no-defaults', ...args], { cwd: dir, env: { ...process.env, TMPDIR: tmpdir } });
  }
  const all = {
    tmpdir,
    'bind-address': '127.0.0.1',
    socket: join(dir, 'socket'),
    'pid-file': join(dir, 'pid'),
    'innodb-flush-log-at-trx-commit': '0',
    'max-connections': '300',
    'skip-name-resolve': '1',
    ...settings,
  };
  const args = [`--datadir=${data}`, user, ...Object.entries(all).map(([name, value]) => `--${name}=${value}`)];
  const program = {
    name: 'mariadbd',
    readyText: /ready for connections/,
    start: (on: number) =>
      spawn(server, ['--no-defaults', ...args, `--port=${on}`], {
        cwd: dir,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, LC_ALL: 'C' },
      }),
  };
  return launchServer(program, port);
}
