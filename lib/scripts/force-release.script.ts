import { defineScript } from './script.js';

/** Deletes a lock whoever holds it. */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  order: 1,
  keys: ['lock'],
  args: [],
  body: `
  -- KEYS   lock
  -- reply  1 deleted | 0 absent
  return redis.call('DEL', lock)`,
});
