import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

const root = fileURLToPath(new URL('../..', import.meta.url));
const appSource = fileURLToPath(new URL('app', import.meta.url));
const bareSource = fileURLToPath(new URL('without-optional-peers', import.meta.url));
const withoutIoredisSource = fileURLToPath(new URL('without-ioredis', import.meta.url));
const jestSource = fileURLToPath(new URL('jest', import.meta.url));

const NEWEST_PEERS = { rxjs: '7.8.2', 'reflect-metadata': '0.2.2' };
const OLDEST_PEERS = { rxjs: '7.2.0', 'reflect-metadata': '0.1.13' };
const NODENEXT = { module: 'nodenext', moduleResolution: 'nodenext' };

/** The newest release of each Nest and the oldest one in `peerDependencies`, and likewise of the optional peers. */
const APPS = [
  {
    type: 'module',
    nest: '12.5.1',
    schedule: '12.0.2',
    terminus: '12.1.0',
    otel: '1.9.1',
    ioredis: ['6.0.0', '5.11.1'],
    redis: '6.3.1',
    pg: '8.23.1',
    peers: NEWEST_PEERS,
    typescript: '7.0.2',
    compilerOptions: NODENEXT,
  },
  {
    type: 'commonjs',
    nest: '12.2.0',
    schedule: '12.0.0',
    terminus: '12.0.0',
    otel: '1.9.0',
    ioredis: ['5.4.0', '6.0.0'],
    peers: NEWEST_PEERS,
    typescript: '6.0.3',
    compilerOptions: NODENEXT,
  },
  {
    type: 'commonjs',
    nest: '11.2.10',
    schedule: '5.0.0',
    terminus: '11.0.0',
    otel: '1.9.1',
    ioredis: ['5.11.1', '6.0.0'],
    redis: '5.10.0',
    pg: '8.11.0',
    peers: OLDEST_PEERS,
    typescript: '5.9.3',
    // Like projects that never switched to `exports`: finds the types through the "types" field.
    compilerOptions: { module: 'commonjs', moduleResolution: 'node10' },
    // Like Jest, and like Node.js before 20.19: this takes the CommonJS build.
    alsoWithoutRequireOfEsm: true,
  },
  {
    type: 'module',
    nest: '11.2.8',
    schedule: '6.1.3',
    terminus: '11.1.1',
    otel: '1.9.0',
    ioredis: ['6.0.0', '5.4.0'],
    peers: NEWEST_PEERS,
    typescript: '5.9.3',
    compilerOptions: NODENEXT,
  },
];

/** How tests with Jest run: the TypeScript of Nest 11, compiled by ts-jest to CommonJS. */
const JEST_APP = {
  type: 'commonjs',
  nest: '11.2.10',
  peers: NEWEST_PEERS,
  typescript: '5.9.3',
  compilerOptions: { module: 'commonjs', moduleResolution: 'node10' },
};
const JEST = { '@nestjs/testing': '11.2.6', jest: '30.5.2', 'ts-jest': '29.4.15' };
const JEST_PROJECTS = [
  { displayName: 'timers that each test fakes' },
  { displayName: 'timers that are fake from the start', fakeTimers: { enableGlobally: true } },
];

/**
 * Installs the packed library in small applications, compiles them and runs them against a real Redis: each with all
 * versions of ioredis that it names, or only with the first. Applications that share most packages follow each other in
 * one folder.
 */
export async function smokeTest(tarball, folder, { allVersions }) {
  const trials = [
    ...APPS.map((app, index) => async () => {
      const own = join(folder, `app-${index}`);
      if (app.redis) {
        await tryWithoutOptionalPeers(app, own, tarball);
        await onRedis((redis) => onPostgres((postgres) => tryWithoutIoredis(app, own, tarball, redis, postgres)));
      }
      const ioredis = allVersions ? app.ioredis : app.ioredis.slice(0, 1);
      await onRedis((redis) => tryApp({ ...app, ioredis }, own, tarball, redis));
    }),
    () => tryJest(join(folder, 'app-jest'), tarball),
    async () => {
      for (const name of ['plain', 'sql']) await tryExample(name, folder, tarball, 'npm');
      await onRedis(({ url }) => tryExample('two-instances', folder, tarball, 'npm', { REDIS_URL: url }));
      await onEtcd(({ endpoints: [url] }) => tryExample('etcd', folder, tarball, 'npm', { ETCD_URL: url }));
    },
  ];
  // It waits for each of them: a failure of one does not interrupt another.
  const ends = await Promise.allSettled([1, 2].map(() => tryAll(trials)));
  const failed = ends.find(({ status }) => status === 'rejected');
  if (failed) throw failed.reason;
}

/** Starts a server for some work, and stops it afterwards: `name` is its class in a file of `test`. */
const onServer = (file, name) => async (work) => {
  const { module } = await runnerImport(join(root, 'test', file));
  const server = await module[name].start();
  try {
    await work(server);
  } finally {
    await server.stop();
  }
};
const onRedis = onServer('support/redis-server.ts', 'RedisServer');
const onPostgres = onServer('support/postgres-server.ts', 'PostgresServer');
const onEtcd = onServer('etcd/etcd-cluster.ts', 'EtcdCluster');

/** The newest peers, in an application with ES modules that another runtime than Node.js runs. */
export async function tryOnRuntime(tarball, folder, runtime, command, ...args) {
  const [app] = APPS;
  const [ioredis] = app.ioredis;
  await mkdir(folder);
  await copyFile(join(appSource, 'main.ts'), join(folder, 'main.ts'));
  await writeJson(join(folder, 'tsconfig.json'), tsconfig(app));
  await writeJson(join(folder, 'package.json'), packageJson(app, ioredis, tarball));
  await step(`${runtime}: install an application`, () => install(folder, { '@nestjs/core': app.nest, ioredis }));
  await step(`${runtime}: compile it`, () => run(program(folder, 'tsc'), [], folder));
  await step(`${runtime}: it runs, ends by itself and leaves no locks`, () =>
    onRedis((redis) => runApp(folder, redis, command, ...args)),
  );
}

/** Runs them one after the other, and takes each from the list when it begins. */
async function tryAll(trials) {
  for (let trial; (trial = trials.shift());) await trial();
}

async function tryApp(app, folder, tarball, redis) {
  await mkdir(folder, { recursive: true });
  for (const file of ['main.ts', 'identity.mjs', 'two-copies.mjs'])
    await copyFile(join(appSource, file), join(folder, file));
  await writeJson(join(folder, 'tsconfig.json'), tsconfig(app));
  for (const ioredis of app.ioredis) {
    const name = `Nest ${app.nest}, ${app.type === 'module' ? 'ESM' : 'CommonJS'}, ioredis ${ioredis}`;
    await writeJson(join(folder, 'package.json'), packageJson(app, ioredis, tarball));
    const { nest, schedule, terminus, otel, peers } = app;
    const versions = {
      '@nestjs/core': nest,
      '@nestjs/schedule': schedule,
      '@nestjs/terminus': terminus,
      '@opentelemetry/api': otel,
      ioredis,
      ...peers,
    };
    await step(`${name}: install`, () => install(folder, versions));
    await step(`${name}: compile with TypeScript ${app.typescript}`, () => run(program(folder, 'tsc'), [], folder));
    await step(`${name}: run`, () => runApp(folder, redis, process.execPath));
    await step(`${name}: the command line`, () => runCommandLine(folder, redis));
    await step(`${name}: import and require give one copy`, () => run(process.execPath, ['identity.mjs'], folder));
    await step(`${name}: a second copy is found`, () => run(process.execPath, ['two-copies.mjs'], folder));
    if (app.alsoWithoutRequireOfEsm) {
      await step(`${name}: a second copy is found, of another build`, () =>
        run(process.execPath, ['--no-experimental-require-module', 'two-copies.mjs'], folder),
      );
      await step(`${name}: run the CommonJS build`, () => runCommonJsBuild(folder, redis));
    }
  }
}

/**
 * Installs, compiles and runs an application with few of the optional peers.
 * @param peers the peers that it has, with their versions
 * @param absent what must not be installed
 */
async function tryFewPeers(app, folder, tarball, { source, what, peers = {}, absent, use }) {
  await mkdir(folder, { recursive: true });
  await copyFile(join(source, 'main.ts'), join(folder, 'main.ts'));
  await writeJson(join(folder, 'tsconfig.json'), tsconfig(app));
  // JSON leaves out undefined values.
  const few = { ...app, schedule: undefined, terminus: undefined, otel: undefined, peers: { ...app.peers, ...peers } };
  await writeJson(join(folder, 'package.json'), packageJson(few, undefined, tarball));
  const name = `Nest ${app.nest}, ${app.type === 'module' ? 'ESM' : 'CommonJS'}, ${what}`;
  await step(`${name}: install`, () => install(folder, { '@nestjs/core': app.nest, ...few.peers }));
  for (const each of absent) {
    if (existsSync(join(folder, 'node_modules', each))) throw new Error(`${each} was installed all the same.`);
  }
  await step(`${name}: compile with TypeScript ${app.typescript}`, () => run(program(folder, 'tsc'), [], folder));
  await use(name);
}

async function tryWithoutOptionalPeers(app, folder, tarball) {
  const absent = ['ioredis', 'redis', 'pg', '@nestjs/schedule', '@nestjs/terminus', '@opentelemetry/api'];
  const use = async (name) => {
    await step(`${name}: run`, () => run(process.execPath, ['out/main.js'], folder));
    await step(`${name}: the command line says what to install`, async () => {
      const advice = 'npm install ioredis, or npm install redis.';
      const said = await run(
        program(folder, 'nest-redis-lock'),
        ['ls', '--redis', 'redis://127.0.0.1:1'],
        folder,
      ).catch(({ message }) => message);
      if (!said.includes(advice)) throw new Error(`It did not say "${advice}": ${said}`);
    });
  };
  await tryFewPeers(app, folder, tarball, { source: bareSource, what: 'no optional peers', absent, use });
}

async function tryWithoutIoredis(app, folder, tarball, redis, postgres) {
  const use = async (name) => {
    const env = { REDIS_URL: redis.url, DATABASE_URL: postgres.url };
    await step(`${name}: run`, () => run(process.execPath, ['out/main.js'], folder, env));
    await step(`${name}: the command line`, () => runCommandLine(folder, redis));
    await step(`${name}: the command line on PostgreSQL`, () =>
      run(program(folder, 'nest-redis-lock'), ['ls', '--postgres', postgres.url], folder),
    );
  };
  const what = `redis ${app.redis}, pg ${app.pg} and no ioredis`;
  const peers = { redis: app.redis, pg: app.pg };
  await tryFewPeers(app, folder, tarball, {
    source: withoutIoredisSource,
    what,
    peers,
    absent: ['ioredis', '@types/pg'],
    use,
  });
}

async function tryJest(folder, tarball) {
  await mkdir(folder);
  for (const file of ['fake-timers.spec.ts', 'testing.spec.ts']) {
    await copyFile(join(jestSource, file), join(folder, file));
  }
  await writeJson(join(folder, 'tsconfig.json'), tsconfig(JEST_APP));
  const manifest = packageJson(JEST_APP, '5.11.1', tarball);
  Object.assign(manifest.devDependencies, JEST);
  await writeJson(join(folder, 'package.json'), manifest);
  const projects = JEST_PROJECTS.map((project) => ({ ...project, rootDir: folder, preset: 'ts-jest' }));
  await writeJson(join(folder, 'jest.config.json'), { projects });
  const name = `Jest ${JEST.jest}, Nest ${JEST_APP.nest}`;
  await step(`${name}: install`, () => install(folder, { '@nestjs/core': JEST_APP.nest, ...JEST }));
  await step(`${name}: locks in memory under fake timers, and the testing kit`, () =>
    run(program(folder, 'jest'), ['--ci'], folder),
  );
}

/**
 * An application of examples/, started as in its README: with the tarball, and otherwise with the versions of this
 * repository.
 * @param runtime of its script `start`
 */
export async function tryExample(name, parent, tarball, runtime, env = {}) {
  const folder = join(parent, 'example');
  for (const part of ['src', 'dist']) await rm(join(folder, part), { recursive: true, force: true });
  const isSource = (path) => !/[\\/](node_modules|dist|package-lock\.json)$/.test(path);
  await cp(join(root, 'examples', name), folder, { recursive: true, filter: isSource });
  const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const { devDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const typescript = devDependencies['@typescript/native'];
  const versions = { ...devDependencies, typescript, 'nest-redis-lock': `file:${tarball}` };
  for (const kind of ['dependencies', 'devDependencies']) {
    for (const dependency of Object.keys(manifest[kind])) manifest[kind][dependency] = versions[dependency];
  }
  await writeJson(join(folder, 'package.json'), manifest);
  await step(`example ${name}: install`, () => install(folder, { '@nestjs/core': devDependencies['@nestjs/core'] }));
  await step(`example ${name}: it shows what it is for, and ends by itself`, () =>
    run(runtime, ['run', 'start'], folder, env),
  );
}

const NPM_FLAGS = [
  '--strict-peer-deps',
  '--prefer-offline',
  '--no-package-lock',
  '--no-audit',
  '--no-fund',
  '--loglevel=error',
];

/** An install over another one could keep old packages: this checks the versions. */
async function install(folder, versions) {
  await run('npm', ['install', ...NPM_FLAGS], folder);
  for (const [name, version] of Object.entries(versions)) {
    const installed = JSON.parse(await readFile(join(folder, 'node_modules', name, 'package.json'), 'utf8')).version;
    if (installed !== version) throw new Error(`${name} ${version} was asked for, ${installed} was installed.`);
  }
}

function packageJson({ type, nest, schedule, terminus, otel, peers, typescript }, ioredis, tarball) {
  return {
    name: 'app',
    version: '1.0.0',
    private: true,
    type,
    dependencies: {
      '@nestjs/common': nest,
      '@nestjs/core': nest,
      '@nestjs/platform-express': nest,
      '@nestjs/schedule': schedule,
      '@nestjs/terminus': terminus,
      '@opentelemetry/api': otel,
      ioredis,
      'nest-redis-lock': `file:${tarball}`,
      ...peers,
    },
    devDependencies: { '@types/node': '20.19.43', typescript },
  };
}

function tsconfig({ compilerOptions }) {
  return {
    compilerOptions: {
      target: 'ES2022',
      lib: ['ES2022'],
      types: ['node'],
      strict: true,
      esModuleInterop: true,
      // Errors in our own declarations must show.
      skipLibCheck: false,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
      rootDir: '.',
      outDir: 'out',
      ...compilerOptions,
    },
    files: ['main.ts'],
  };
}

async function runApp(folder, redis, command, ...args) {
  await redis.command('FLUSHALL');
  await run(command, [...args, 'out/main.js'], folder, { REDIS_URL: redis.url });
  const keys = await redis.keys('*');
  // The number of calls that waited behind a lock is shown for a while afterwards.
  const locks = keys.filter((key) => key !== 'lock:fence' && !key.endsWith('}:calls'));
  if (locks.length > 0) throw new Error(`Locks were left behind: ${locks.join(', ')}`);
}

async function runCommandLine(folder, redis) {
  const call = (...argv) => run(program(folder, 'nest-redis-lock'), argv, folder, { REDIS_URL: redis.url });
  const help = await call('--help');
  if (!help.includes('Usage: nest-redis-lock')) throw new Error(`This is no help: ${help}`);
  const output = await call('doctor', '--json');
  // ioredis 5.4.0 prints when it has connected.
  const { nodes } = JSON.parse(output.slice(output.search(/^\{$/m), output.search(/^\}$/m) + 1));
  if (nodes.length !== 1 || !nodes[0].reachable) throw new Error(`The doctor found ${JSON.stringify(nodes)}.`);
}

async function runCommonJsBuild(folder, redis) {
  const flag = '--no-experimental-require-module';
  const resolved = await run(process.execPath, [flag, '--print', "require.resolve('nest-redis-lock')"], folder);
  if (!resolved.includes('/dist/cjs/')) throw new Error(`This is not the CommonJS build: ${resolved}`);
  await runApp(folder, redis, process.execPath, flag);
}

/** A program of a package that is installed there. To find it, npx would take longer than most of them run. */
export function program(folder, name) {
  return join(folder, 'node_modules/.bin', name);
}

const TIME_LIMIT_MS = 120_000;

/** @throws Error with the whole output, if the command fails or does not end */
export function run(command, args, cwd, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => (output += text));
    const timer = setTimeout(() => child.kill('SIGKILL'), TIME_LIMIT_MS);
    child.on('error', reject).on('close', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) return resolve(output);
      const end = signal
        ? `was ended by ${signal} (time limit: ${TIME_LIMIT_MS / 1_000} s)`
        : `ended with code ${code}`;
      reject(new Error(`${command} ${args.join(' ')} ${end} in ${cwd}:\n${output}`));
    });
  });
}

export async function step(name, work) {
  const start = performance.now();
  try {
    const result = await work();
    console.log(`  ok    ${name} (${((performance.now() - start) / 1_000).toFixed(1)} s)`);
    return result;
  } catch (error) {
    console.log(`  FAIL  ${name}`);
    throw error;
  }
}

async function writeJson(file, content) {
  await writeFile(file, JSON.stringify(content, null, 2));
}
