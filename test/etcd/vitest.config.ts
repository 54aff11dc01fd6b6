import { defineConfig } from 'vitest/config';
import { shared } from '../vitest.config.js';

/**
 * The tests of the example in `examples/etcd`. They need an etcd, which is found or unpacked: `npm run test:servers --
 * etcd`.
 */
export default defineConfig({
  ...shared,
  test: { ...shared.test, include: ['test/etcd/**/*.test.ts'], maxWorkers: 2 },
});
