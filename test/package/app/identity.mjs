import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

// One copy of each class, however it is loaded: `instanceof` and injection tokens depend on it.
for (const [entry, known] of [
  ['nest-redis-lock', 'LockService'],
  ['nest-redis-lock/backend', 'LockModule'],
  ['nest-redis-lock/otel', 'otelLocks'],
  ['nest-redis-lock/page', 'LocksPageModule'],
  ['nest-redis-lock/schedule', 'LockedCron'],
  ['nest-redis-lock/terminus', 'LockHealthIndicator'],
  ['nest-redis-lock/testing', 'LockBench'],
]) {
  const required = createRequire(import.meta.url)(entry);
  const imported = { ...(await import(entry)) };
  const names = Object.keys(imported).filter((name) => name !== 'default' && name !== 'module.exports');
  assert(names.includes(known));
  for (const name of names) assert.equal(required[name], imported[name], name);
}
