import { execFile, spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { provideMariaDb } from './find-mariadb.js';
import { chosenMysql } from './find-mysql.js';
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

/** What MySQL and MariaDB are started by in different ways. */
interface Kind {
  readonly server: string;
  /** Makes the files of a new server: a program and its arguments. */
  readonly install: readonly [program: string, ...args: string[]];
  readonly settings: Readonly<Record<string, string>>;
}

/**
 * Starts a MariaDB on 127.0.0.1, or the MySQL that `MYSQL_SERVER` names. Its user `root` needs no password. It dies with this process
 * however this process ends.
 * @returns when it accepts connections
 */
export async function launchMariaDb({ dir, port, settings = {} }: LaunchMariaDbOptions): Promise<LaunchedServer> {
  const chosen = chosenMysql();
  const kind = await (chosen === undefined ? mariaDb() : mysql(chosen, dir));
  const user = `--user=${userInfo().username}`;
  const data = join(dir, 'data');
  // A server that starts deletes the temporary tables of others, also one that makes the files of a new server.
  const tmpdir = join(dir, 'tmp');
  await mkdir(tmpdir, { recursive: true });
  if (await mkdir(data, { recursive: true })) {
    const [program, ...options] = kind.install;
    const args = ['--no-defaults', ...options, `--datadir=${data}`, user];
    await run(program, args, { cwd: dir, env: { ...process.env, TMPDIR: tmpdir } });
  }
  const all = {
    tmpdir,
    'bind-address': '127.0.0.1',
    socket: join(dir, 'socket'),
    'pid-file': join(dir, 'pid'),
    'innodb-flush-log-at-trx-commit': '0',
    'max-connections': '300',
    'skip-name-resolve': '1',
    ...kind.settings,
    ...settings,
  };
  const args = [`--datadir=${data}`, user, ...Object.entries(all).map(([name, value]) => `--${name}=${value}`)];
  const program = {
    name: basename(kind.server),
    readyText: /ready for connections/,
    start: (on: number) =>
      spawn(kind.server, ['--no-defaults', ...args, `--port=${on}`], {
        cwd: dir,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, LC_ALL: 'C' },
      }),
  };
  return launchServer(program, port);
}

async function mariaDb(): Promise<Kind> {
  const { server, install } = await provideMariaDb();
  return { server, install: [install, '--auth-root-authentication-method=normal', '--skip-test-db'], settings: {} };
}

async function mysql(server: string, dir: string): Promise<Kind> {
  // `root@localhost`, which is there, may not come from 127.0.0.1 with `skip-name-resolve`.
  const init = join(dir, 'init.sql');
  const root = 'root@127.0.0.1';
  await writeFile(init, `CREATE USER IF NOT EXISTS ${root};\nGRANT ALL ON *.* TO ${root} WITH GRANT OPTION;\n`);
  const settings = { 'init-file': init, mysqlx: 'OFF', 'secure-file-priv': '', 'sync-binlog': '0' };
  return { server, install: [server, '--initialize-insecure', '--secure-file-priv='], settings };
}
