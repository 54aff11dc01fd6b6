import 'reflect-metadata';
import assert from 'node:assert/strict';
import { cpSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

// If a package of the application has its own copy, this causes one warning, which names both.
const warnings = [];
process.stderr.write = (warning) => warnings.push(warning);
const installed = fileURLToPath(new URL('node_modules/nest-redis-lock', import.meta.url));
const nested = fileURLToPath(new URL('node_modules/other/node_modules/nest-redis-lock', import.meta.url));
cpSync(installed, nested, { recursive: true });

const require = createRequire(import.meta.url);
for (const entry of ['', '/otel', '/page', '/schedule', '/terminus', '/testing']) {
  await import(`nest-redis-lock${entry}`);
  // Without it, Node.js loads two copies of one package: the builds for import and for require.
  if (process.features.require_module) require(`nest-redis-lock${entry}`);
}
assert.deepEqual(ofCopies(), []);

const other = createRequire(`${nested}/../../index.js`);
for (const entry of ['', '/schedule']) other(`nest-redis-lock${entry}`);
const [warning, ...more] = ofCopies();
assert.ok(warning?.includes(`${installed}/dist/esm`), warning);
assert.ok(warning.includes(`${nested}/dist/`), warning);
assert.deepEqual(more, []);

function ofCopies() {
  return warnings.filter((warning) => String(warning).startsWith('[NEST_REDIS_LOCK_TWICE]'));
}
