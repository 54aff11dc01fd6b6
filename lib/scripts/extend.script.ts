import { defineScript } from './script.js';

/**
 * Starts the ttl of each lock anew that its owner still holds. With the mode `restore` an absent lock is put back:
 * a node of a Redlock that restarted would otherwise stay without it. That never counts as held, only as mended.
 */
export const EXTEND = defineScript({
  name: 'extend',
  keysPerOperation: 1,
  order: 2,
  source: `
-- KEYS  [lock] per lock
-- ARGV  [owner, ttl in ms, 'restore' or 'keep'] per lock
-- reply per lock: 1 extended | 2 put back | 0 absent | -1 another's, or no string at all | {error}
local replies = {}
for i = 1, #KEYS do
  local lock, owner, ttl, mode = KEYS[i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    replies[i] = redis.call('PEXPIRE', lock, ttl)
  elseif not holder then
    replies[i] = 0
    if mode == 'restore' then
      local set = redis.pcall('SET', lock, owner, 'PX', ttl)
      replies[i] = set.err and {set.err} or 2
    end
  elseif type(holder) == 'table' and not string.find(holder.err, '^WRONGTYPE') then
    replies[i] = {holder.err}
  else
    replies[i] = -1
  end
end
return replies`,
});
