import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

// Runs the tests that depend on the server against each kind of server, one after the other:
// npm run test:servers [-- [--all] [names]]
// A server that is neither on the PATH nor in `.redis/`, `.mariadb/`, `.mysql/` or `.etcd/` is unpacked there from the packages of Debian; where that fails the run fails.

/** Those of the stable distribution and its backports. */
const STABLE = [
  { name: 'redis', executable: 'redis-server' },
  { name: 'valkey', executable: 'valkey-server', suite: 'backports' },
  { name: 'redict', executable: 'redict-server', suite: 'backports' },
  { name: 'mariadb', find: findMariaDb },
  { name: 'etcd', find: findEtcd },
];
/** Those that change from day to day. */
const NEWER = [
  { name: 'redis-sid', executable: 'redis-server', suite: 'sid' },
  { name: 'redis-experimental', executable: 'redis-server', suite: 'experimental' },
  { name: 'valkey-sid', executable: 'valkey-server', suite: 'sid' },
  { name: 'mysql', find: findMysql },
];
/**
 * What is sent to a Redis, and understood of its answers: scripts, stores, replicas, checks, and what stands in for a server.
 * What the library then does is the same for all.
 */
const TESTS = ['scripts', 'contract', 'replicas', 'doctor', 'simulation/redis'];
/** With how many random steps the simulated Redis is compared with this one. */
const DIFFERENTIAL_STEPS = '10000';

const root = fileURLToPath(new URL('..', import.meta.url));
const servers = chosen(process.argv.slice(2));
const folder = mkdtempSync(join(tmpdir(), 'test-servers-'));
process.exitCode = 1;
try {
  const found = [];
  // All before the first run: one that is missing is no reason to wait for the others.
  for (const server of servers) found.push(await (server.find ?? findRedis)(server));
  const results = found.map(test);
  console.log(`\n${results.map(({ line }) => line).join('\n')}`);
  process.exitCode = results.every(({ isGreen }) => isGreen) ? 0 : 1;
} catch (error) {
  console.error(error.message);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function chosen(words) {
  const all = [...STABLE, ...NEWER];
  const names = words.filter((word) => word !== '--all');
  const unknown = names.find((name) => !all.some((server) => server.name === name));
  if (unknown !== undefined) {
    console.error(`Unknown server ${unknown}: known are ${all.map(({ name }) => name).join(', ')}.`);
    process.exit(2);
  }
  if (names.length > 0) return all.filter(({ name }) => names.includes(name));
  return words.includes('--all') ? all : STABLE;
}

async function load(file) {
  return (await runnerImport(join(root, file), { configFile: false })).module;
}

async function findRedis(server) {
  const { provideRedisServer, provideServer } = await load('servers/find-redis-server.ts');
  const { path, env } = await (server.name === 'redis' ? provideRedisServer() : provideServer(server));
  const says = execFileSync(path, ['--version'], { env, encoding: 'utf8' }); // "Valkey server v=8.0.1 sha=..."
  const version = says.replace(/ server v=(\S+).*/s, ' $1');
  const tests = ['--config', 'test/vitest.config.ts', '--project', 'real', ...TESTS.map((files) => `test/${files}`)];
  return { path, version, tests, settings: { REDIS_SERVER: path, DIFFERENTIAL_STEPS } };
}

/** Its tests find it by themselves. */
async function findMariaDb() {
  const { provideMariaDb } = await load('servers/find-mariadb.ts');
  const { server: path } = await provideMariaDb();
  const says = execFileSync(path, ['--version'], { encoding: 'utf8' }); // "mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for ..."
  const version = says.replace(/.* Ver ([\d.]+).*/s, 'MariaDB $1');
  return { path, version, tests: ['--config', 'test/mariadb/vitest.config.ts'], settings: { MYSQL_SERVER: '' } };
}

/** The tests of MariaDB, which start the server that MYSQL_SERVER names. */
async function findMysql() {
  const path = await (await load('servers/find-mysql.ts')).provideMysql();
  const says = execFileSync(path, ['--version'], { encoding: 'utf8' }); // "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))"
  const version = says.replace(/.* Ver ([\d.]+).*/s, 'MySQL $1');
  return { path, version, tests: ['--config', 'test/mariadb/vitest.config.ts'], settings: { MYSQL_SERVER: path } };
}

/** The tests of the store in `examples/etcd`, which find it by themselves. */
async function findEtcd() {
  const path = await (await load('servers/find-etcd.ts')).provideEtcd();
  const says = execFileSync(path, ['--version'], { encoding: 'utf8' }); // "etcd Version: 3.4.23\nGit SHA: ..."
  const version = says.replace(/ Version: (\S+).*/s, ' $1');
  return { path, version, tests: ['--config', 'test/etcd/vitest.config.ts'], settings: {} };
}

function test({ path, version, tests, settings }) {
  console.log(`\n== ${version} (${path})`);
  const report = join(folder, 'report.json');
  rmSync(report, { force: true });
  const startedAt = performance.now();
  const { status } = spawnSync(
    process.execPath,
    [
      ...['node_modules/vitest/vitest.mjs', 'run', ...tests],
      ...['--reporter=dot', '--reporter=json', `--outputFile.json=${report}`],
    ],
    {
      cwd: root,
      env: { ...process.env, ...settings, NO_COLOR: '1' },
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
  const { numPassedTests = 0, numFailedTests = 0 } = JSON.parse(readFileSync(report, 'utf8'));
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  const isGreen = status === 0 && numPassedTests > 0;
  // A run can fail without a failed test: by an unhandled rejection, or before the first test.
  const failed = isGreen ? 0 : Math.max(numFailedTests, 1);
  return { isGreen, line: `${version}: ${numPassedTests} passed, ${failed} failed, ${seconds} s` };
}
