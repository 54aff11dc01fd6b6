import { defineConfig } from 'vitest/config';
import { shared } from '../vitest.config.js';

// The tests that need a Chromium: `npm run test:page`. With PAGE_PICTURE, this takes the picture of docs/page.md
// instead.
const include = process.env.PAGE_PICTURE ? ['test/browser/picture.ts'] : ['test/browser/**/*.test.ts'];

export default defineConfig({
  ...shared,
  test: { ...shared.test, include, globalSetup: ['test/global-setup.ts'] },
});
