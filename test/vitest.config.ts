import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const root = fileURLToPath(new URL('..', import.meta.url));

export default defineConfig({
  root,
  resolve: {
    alias: {
      'nest-redis-lock/otel': `${root}lib/otel/index.ts`, // before the name that it begins with
      'nest-redis-lock/page': `${root}lib/page/index.ts`,
      'nest-redis-lock/schedule': `${root}lib/schedule/index.ts`,
      'nest-redis-lock/terminus': `${root}lib/terminus/index.ts`,
      'nest-redis-lock/testing': `${root}lib/testing/index.ts`,
      'nest-redis-lock': `${root}lib/index.ts`,
    },
  },
  test: {
    include: ['test/**/*.test.ts'],
    // The first load the built package, the second need a browser: each has a runner of its own.
    exclude: ['test/package/**', 'test/browser/**'],
    globalSetup: ['test/global-setup.ts'],
    setupFiles: ['reflect-metadata'],
    pool: 'forks',
    // Loading Nest anew for every file costs more than the tests; no test file changes global state.
    isolate: false,
    // For two cores: most tests wait for servers, but yet more forks would stretch the timings that they look at.
    maxWorkers: 3,
    // Vitest fails a run in which a rejection stayed unhandled, even if all tests passed: tests need not look for it.
    dangerouslyIgnoreUnhandledErrors: false,
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
