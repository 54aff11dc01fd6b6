/** The PostgreSQL or MariaDB of a cell: a server of the tests with its own files, which survive a restart. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';
import { connectMariaDb, connectPostgres } from '../contestants/sql-clients.mjs';

export const openPostgresStore = (_, scratch) =>
  openStore(scratch, {
    launch: 'launchPostgres',
    from: '../../servers/launch-postgres.ts',
    folderOf: async (port) => (await asked(connectPostgres, port, 'SHOW data_directory')).data_directory,
    end: 'SIGQUIT', // its processes end at once, and nothing is written
  });

export const openMariaDbStore = (_, scratch) =>
  openStore(scratch, {
    launch: 'launchMariaDb',
    from: '../../servers/launch-mariadb.ts',
    // The operating system has everything that was committed.
    settings: { 'innodb-flush-log-at-trx-commit': '2' },
    folderOf: async (port) => (await asked(connectMariaDb, port, 'SELECT @@datadir AS folder')).folder,
    end: 'SIGKILL',
  });

async function openStore(scratch, { launch, from, settings, folderOf, end }) {
  const { module } = await runnerImport(fileURLToPath(new URL(from, import.meta.url)), { configFile: false });
  chmodSync(scratch, 0o711); // PostgreSQL does not run as root
  const dir = join(scratch, 'database');
  mkdirSync(dir);
  const start = (port) => module[launch]({ dir, port, settings });
  let server = await start();
  const { port } = server;
  if (realpathSync(await folderOf(port)) !== realpathSync(join(dir, 'data')))
    throw new Error(`another server answers on port ${port}: run the cell again.`);

  const signal = (name) => {
    for (const pid of [server.process.pid, ...childrenOf(server.process.pid)]) process.kill(pid, name);
  };
  return {
    ports: [port],
    isCluster: false,
    hasProxies: true,
    stop: () => signal('SIGSTOP'),
    go: () => signal('SIGCONT'),
    async kill() {
      server.process.kill(end);
      await once(server.process, 'exit');
    },
    async start() {
      server = await start(port);
    },
  };
}

async function asked(connect, port, query) {
  const connection = await connect(port);
  const [row] = await connection.rows(query);
  await connection.end();
  return row;
}

/** PostgreSQL has a process for each connection. */
function childrenOf(pid) {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid=']).toString().trim().split('\n');
  return lines
    .map((line) => line.trim().split(/ +/).map(Number))
    .flatMap(([child, parent]) => (parent === pid ? child : []));
}
