import { defineConfig } from 'vitest/config';
import { shared } from '../vitest.config.js';

/** The tests that need a MariaDB, which is found or unpacked: `npm run test:servers -- mariadb`. */
export default defineConfig({
  ...shared,
  test: { ...shared.test, include: ['test/mariadb/**/*.test.ts'], maxWorkers: 2 },
});
