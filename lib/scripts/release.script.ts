import { defineScript } from './script.js';

/** Deletes each lock that its owner still holds: compare and delete in one step. */
export const RELEASE = defineScript({
  name: 'release',
  keysPerOperation: 1,
  order: 1,
  source: `
-- KEYS  [lock] per lock
-- ARGV  [owner] per lock
-- reply per lock: 1 deleted | 0 absent | -1 another's, or no string at all | {error}
local replies = {}
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[i] then
    replies[i] = redis.call('DEL', KEYS[i])
  elseif not holder then
    replies[i] = 0
  elseif type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then
    replies[i] = {holder.err}
  else
    replies[i] = -1
  end
end
return replies`,
});
