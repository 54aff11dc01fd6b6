import { defineConfig } from 'vitest/config';
import { shared } from '../vitest.config.js';
import { ONLY_SIMULATED, SUITES } from './runtimes.js';

/** On real servers and in real time: the simulation replaces the event loop of Node.js. */
export default defineConfig({
  ...shared,
  test: {
    ...shared.test,
    include: SUITES.map((suite) => `test/${suite}${suite.includes('/') ? '' : '/**/*'}.test.ts`),
    exclude: ONLY_SIMULATED.map((file) => `test/${file}.test.ts`),
    setupFiles: [...shared.test.setupFiles, 'test/runtimes/setup.ts'],
    globalSetup: ['test/global-setup.ts'],
    execArgv: [], // those of Node.js
    maxWorkers: 1, // some files are about time, and have it for themselves
  },
});
