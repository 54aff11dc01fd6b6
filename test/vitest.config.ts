import { fileURLToPath } from 'node:url';
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config';

const root = fileURLToPath(new URL('..', import.meta.url));

/** In simulated time, on simulated servers: what of these folders needs a real one is in a file `*.real.test.ts`. */
const SIMULATED = [
  '{backends,hazards,leader,lease,list,service,sets}/**/!(*.real)',
  // and of others what is about time
  'contract/{from-promises,toy-service}',
  'doctor/far-away',
  'fuzz/{hostile-server,input,lock-queue}',
  'migrate/{both-locks,ported-services}',
  'nest/{logs,start}',
  'replicas/**/!(*.real)',
  'scripts/{hung-server,overload}',
  'simulation/replicas',
  'telemetry/{contexts,dashboard}',
  'terminus/lock-health',
].map((files) => `test/${files}.test.ts`);
/** What needs real servers and depends on time, such as processes that are killed. */
const REAL = 'test/**/*.real.test.ts';
/** The first load the built package, the second need a browser: each has a runner of its own. */
const ELSEWHERE = ['test/package/**', 'test/browser/**'];

const alias = [
  ['nest-redis-lock/otel', `${root}lib/otel/index.ts`], // before the name that it begins with
  ['nest-redis-lock/page', `${root}lib/page/index.ts`],
  ['nest-redis-lock/schedule', `${root}lib/schedule/index.ts`],
  ['nest-redis-lock/terminus', `${root}lib/terminus/index.ts`],
  ['nest-redis-lock/testing', `${root}lib/testing/index.ts`],
  ['nest-redis-lock', `${root}lib/index.ts`],
].map(([find, replacement]) => ({ find: find!, replacement: replacement! }));

const simulated: TestProjectInlineConfiguration = {
  extends: true,
  resolve: {
    // In place of what starts real servers.
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
    maxWorkers: 2,
    sequence: { groupOrder: 1 },
    // Also in simulated time: less than a minute, the longest time limit of a command, which stands for never.
    testTimeout: 50_000,
  },
};

/** All others: where nothing is asserted that depends on time, with or without a real server. */
const functional: TestProjectInlineConfiguration = {
  extends: true,
  test: {
    name: 'functional',
    include: ['test/**/*.test.ts'],
    exclude: [...SIMULATED, REAL, ...ELSEWHERE],
    globalSetup: ['test/global-setup.ts'],
    maxWorkers: 2,
    sequence: { groupOrder: 2 },
  },
};

/** One after the other, so that none has to wait for another. */
const real = (include: string): TestProjectInlineConfiguration => ({
  extends: true,
  test: {
    name: 'real',
    include: [include],
    exclude: ELSEWHERE,
    globalSetup: ['test/global-setup.ts'],
    maxWorkers: 1,
    sequence: { groupOrder: 3 },
  },
});

/** What all runs have in common. */
export const shared = {
  root,
  resolve: { alias },
  test: {
    setupFiles: ['reflect-metadata'],
    pool: 'forks',
    // Loading Nest anew for every file costs more than the tests; no test file changes global state.
    isolate: false,
    // Vitest fails a run in which a rejection stayed unhandled, even if all tests passed: tests need not look for it.
    dangerouslyIgnoreUnhandledErrors: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
} satisfies ViteUserConfig;

/** With `--mode real` all files run on real servers. */
export default defineConfig(({ mode }) => ({
  ...shared,
  test: {
    ...shared.test,
    projects: mode === 'real' ? [real('test/**/*.test.ts')] : [simulated, functional, real(REAL)],
  },
}));
