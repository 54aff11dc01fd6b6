import { defineScript } from './script.js';

/** Deletes each lock whoever holds it. */
export const FORCE_RELEASE = defineScript({
  name: 'force-release',
  keysPerOperation: 1,
  order: 1,
  source: `
-- KEYS  [lock] per lock
-- reply per lock: 1 deleted | 0 absent
local replies = {}
for i = 1, #KEYS do
  replies[i] = redis.call('DEL', KEYS[i])
end
return replies`,
});
