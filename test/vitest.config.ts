import { fileURLToPath } from 'node:url';
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config';

const root = fileURLToPath(new URL('..', import.meta.url));

/** What runs in simulated time, on simulated servers: what needs a real one is in `*.real.test.ts` beside it. */
const SIMULATED = [
  'backends/{abandoned-acquire,clients,echoed-credentials,in-time,lock-values}',
  'backends/redlock-{extend,fencing,late-vote,votes}',
  'leader/{election,faults}',
  'lease/{asking,lock-handle,losing}',
  'service/{begin-with-grant,called-back,deadlines,exclusion,force-release,given-up-holds,hold,holding,lock-sets}',
  'service/{outage,ping,redlock-waiting,reentrancy,shutdown,width}',
  'sets/faults',
].map((files) => `test/${files}.test.ts`);
const REAL = 'test/**/*.real.test.ts';
/** Where nothing is asserted that depends on time: on real servers, too, but side by side. */
const FUNCTIONAL = ['bundle', 'chaos', 'migrate', 'model', 'nest', 'readme', 'recipes', 'schedule', 'testing'].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);
FUNCTIONAL.push('test/simulation/explorer.test.ts');
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
    // In place of the class that starts real servers.
    alias: [
      {
        find: /^(\.\.?\/)+(support\/)?redis-server\.js$/,
        replacement: `${root}test/simulation/vitest/redis-server.ts`,
      },
    ],
  },
  test: {
    name: 'simulated',
    include: SIMULATED,
    exclude: [REAL],
    setupFiles: ['reflect-metadata', `${root}test/simulation/vitest/setup.ts`],
    maxWorkers: 2,
    sequence: { groupOrder: 1 },
  },
};

const functional: TestProjectInlineConfiguration = {
  extends: true,
  test: {
    name: 'functional',
    include: FUNCTIONAL,
    globalSetup: ['test/global-setup.ts'],
    maxWorkers: 2,
    sequence: { groupOrder: 2 },
  },
};

/** One after the other, so that none has to wait for another. @param others the files that other projects run */
const real = (others: readonly string[]): TestProjectInlineConfiguration => ({
  extends: true,
  test: {
    name: 'real',
    include: ['test/**/*.test.ts'],
    exclude: [...ELSEWHERE, ...others],
    globalSetup: ['test/global-setup.ts'],
    maxWorkers: 1,
    sequence: { groupOrder: 3 },
    testTimeout: 60_000,
    hookTimeout: 60_000,
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
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
} satisfies ViteUserConfig;

/** With `--mode real` all files run on real servers. */
export default defineConfig(({ mode }) => ({
  ...shared,
  test: {
    ...shared.test,
    projects: mode === 'real' ? [real([])] : [simulated, functional, real([...SIMULATED, ...FUNCTIONAL])],
  },
}));
