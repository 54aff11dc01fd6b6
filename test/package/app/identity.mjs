import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

// One copy of each class, however it is loaded: `instanceof` and injection tokens depend on it.
const required = createRequire(import.meta.url)('nest-redis-lock');
const imported = { ...(await import('nest-redis-lock')) };
const names = Object.keys(imported).filter((name) => name !== 'default' && name !== 'module.exports');
assert(names.includes('LockService'));
for (const name of names) assert.equal(required[name], imported[name], name);
