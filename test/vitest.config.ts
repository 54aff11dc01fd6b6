import { fileURLToPath } from 'node:url';
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * In simulated time, on simulated servers: tests of these folders that need a real server are in a file
 * `*.real.test.ts`.
 */
const SIMULATED = [
  '{backends,hazards,leader,lease,list,service,sets}/**/!(*.real)',
  // and in other folders, the tests about time
  'adapters/{adapter,dead-master}',
  'bench/faults',
  'contract/{answers-in-any-order,broken-backends,from-promises,lock-backend,toy-service}',
  'doctor/far-away',
  'fuzz/{hostile-server,input}',
  'migrate/{both-locks,ported-services}',
  'nest/{logs,policies,unavailable}',
  'replicas/**/!(*.real)',
  'scripts/{hung-server,overload}',
  'simulation/replicas',
  'telemetry/contexts',
  'terminus/lock-health',
].map((files) => `test/${files}.test.ts`);
/** What an application sees of a lock, and could see differently on a table of PostgreSQL: these tests also run there. */
const ON_POSTGRES = [
  'nest/{disconnects,http,leader,methods,several-keys,timeouts}',
  'page/locks-page',
  'schedule/locked-cron',
].map((files) => `test/${files}.test.ts`);
/** They take longer than 10 s. */
const LONGEST = [
  'sample.test.ts',
  'sharded-messages.real.test.ts',
  'sql/faults.real.test.ts',
  'explorer.test.ts',
  'model.test.ts',
  'overload.test.ts',
];
/**
 * The first load the built package, the second need a browser, the third a MariaDB, the fourth an etcd: each has its
 * own runner.
 */
const ELSEWHERE = ['test/package/**', 'test/browser/**', 'test/mariadb/**', 'test/etcd/**'];

const alias: { find: string | RegExp; replacement: string }[] = [
  ['nest-redis-lock/backend', `${root}lib/backend/index.ts`], // before the name that it begins with
  ['nest-redis-lock/otel', `${root}lib/otel/index.ts`],
  ['nest-redis-lock/page', `${root}lib/page/index.ts`],
  ['nest-redis-lock/schedule', `${root}lib/schedule/index.ts`],
  ['nest-redis-lock/sql', `${root}lib/sql/index.ts`],
  ['nest-redis-lock/terminus', `${root}lib/terminus/index.ts`],
  ['nest-redis-lock/testing', `${root}lib/testing/index.ts`],
  ['nest-redis-lock', `${root}lib/index.ts`],
].map(([find, replacement]) => ({ find: find!, replacement: replacement! }));

// Opens URLs with node-redis.
if (process.env.REDIS_CLIENT === 'node-redis') {
  alias.push({
    find: /^\.\.\/stores\/redis\/ioredis\/ioredis-driver\.js$/,
    replacement: `${root}test/adapters/ioredis-for-clients-only.ts`,
  });
}

const simulated: TestProjectInlineConfiguration = {
  extends: true,
  resolve: {
    // Replaces what starts real servers.
    alias: [
      {
        find: /^(\.\.?\/)+(support\/)?redis-server\.js$/,
        replacement: `${root}test/simulation/vitest/redis-server.ts`,
      },
      {
        find: /^(\.\.?\/)+(support\/)?launch-sentinel\.js$/,
        replacement: `${root}test/simulation/vitest/launch-sentinel.ts`,
      },
    ],
  },
  test: {
    name: 'simulated',
    include: SIMULATED,
    runner: `${root}test/simulation/vitest/runner.ts`,
    setupFiles: ['reflect-metadata', `${root}test/simulation/vitest/setup.ts`],
  },
};

const postgres: TestProjectInlineConfiguration = {
  extends: true,
  resolve: {
    alias: [{ find: /^\.\/lock-module\.js$/, replacement: `${root}test/sql/vitest/lock-module.ts` }],
  },
  test: { name: 'postgres', include: ON_POSTGRES, globalSetup: ['test/global-setup.ts'] },
};

/** All others, on real servers if they need any: the ones that depend on time are named `*.real.test.ts`. */
const real = (elsewhere: string[] = []): TestProjectInlineConfiguration => ({
  extends: true,
  test: {
    name: 'real',
    include: ['test/**/*.test.ts'],
    exclude: [...elsewhere, ...ELSEWHERE],
    globalSetup: ['test/global-setup.ts'],
  },
});

/**
 * Begins with the longest files, and spreads the files that mostly wait evenly, since others compute meanwhile. The
 * files of a project follow each other: a file of another project needs a new worker. Files in simulated time come
 * last: they are short, so that no processor is idle at the end.
 */
class Mixed extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const of = (name: string) => sorted.filter(({ project }) => project.name === name);
    const [longest, others] = partition(of('real'), isLong);
    const [waiting, computing] = partition(others, ({ moduleId }) => moduleId.endsWith('.real.test.ts'));
    const placed = [waiting, computing].flatMap((alike) =>
      alike.map((file, at) => ({ file, place: (at + 1) / alike.length })),
    );
    const spread = placed.sort((a, b) => a.place - b.place).map(({ file }) => file);
    return [...longest, ...of('postgres'), ...spread, ...partition(of('simulated'), isLong).flat()];
  }
}

function isLong({ moduleId }: TestSpecification): boolean {
  return LONGEST.some((name) => moduleId.endsWith(name));
}

function partition<T>(all: readonly T[], belongs: (each: T) => boolean): [T[], T[]] {
  return [all.filter(belongs), all.filter((each) => !belongs(each))];
}

/** The settings of all runs. */
export const shared = {
  root,
  resolve: { alias },
  test: {
    setupFiles: ['reflect-metadata'],
    pool: 'forks',
    // Loading Nest again for every file costs more than the tests; no test file changes global state.
    isolate: false,
    // PostgreSQL as WebAssembly starts with half the work when it is not optimized.
    execArgv: ['--liftoff-only'],
    // Vitest fails a run with an unhandled rejection, even if all tests passed: tests need not look for it.
    dangerouslyIgnoreUnhandledErrors: false,
    // The waits of a test have their own limits: these limits end only what would never end, however slow the machine
    // is.
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
} satisfies ViteUserConfig;

/** With `--mode real` all files run on real servers. */
export default defineConfig(({ mode }) => ({
  ...shared,
  test: {
    ...shared.test,
    projects: mode === 'real' ? [real()] : [simulated, postgres, real(SIMULATED)],
    // Some files mostly wait, so there are more than the two processors of CI.
    maxWorkers: mode === 'real' ? 1 : 6,
    sequence: { sequencer: Mixed },
  },
}));
