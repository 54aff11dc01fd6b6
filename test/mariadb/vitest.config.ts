import { defaultExclude, defineConfig } from 'vitest/config';
import { shared } from '../vitest.config.js';

/**
 * The tests that need a MariaDB, which is found or unpacked (`npm run test:servers -- mariadb`), or a MySQL (`--
 * mysql`).
 */
const ofMariaDb = process.env.MYSQL_SERVER ? ['**/*.mariadb.test.ts'] : [];

export default defineConfig({
  ...shared,
  test: {
    ...shared.test,
    include: ['test/mariadb/**/*.test.ts'],
    exclude: [...defaultExclude, ...ofMariaDb],
    maxWorkers: 2,
  },
});
