import { defineConfig } from 'vitest/config';
import everywhere from '../vitest.config.js';

// What needs a Chromium: `npm run test:page`. With PAGE_PICTURE it takes the picture of docs/page.md instead.
const include = process.env.PAGE_PICTURE ? ['test/browser/picture.ts'] : ['test/browser/**/*.test.ts'];

export default defineConfig({ ...everywhere, test: { ...everywhere.test, include, exclude: [], testTimeout: 60_000 } });
