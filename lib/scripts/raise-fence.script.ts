import { FENCE_TTL_MS } from './acquire.script.js';
import { defineScript } from './script.js';

/**
 * Raises the fencing counter of each lock that its owner still holds to a token, never lowers it: the write-back by
 * which a Redlock makes a token known to a majority before it is issued.
 */
export const RAISE_FENCE = defineScript({
  name: 'raise-fence',
  keysPerOperation: 2,
  order: 2,
  source: `
-- KEYS  [lock, fence] per lock
-- ARGV  [owner, token] per lock
-- reply per lock: 1 the counter is at or above the token | 0 not held by this owner | {error}
local replies = {}
for i = 1, #KEYS, 2 do
  local lock, fence, owner, token = KEYS[i], KEYS[i + 1], ARGV[i], ARGV[i + 1]
  local holder = redis.pcall('GET', lock)
  local reply = 0
  if holder == owner then
    local counter = redis.pcall('GET', fence) or 0
    local at = tonumber(counter)
    reply = 1
    if not at then
      reply = {type(counter) == 'table' and counter.err or 'ERR fencing counter is not a number'}
    elseif at < tonumber(token) then
      local set = redis.pcall('SET', fence, token, 'PX', ${FENCE_TTL_MS})
      if set.err then reply = {set.err} end
    end
  elseif type(holder) == 'table' then
    reply = {holder.err}
  end
  replies[#replies + 1] = reply
end
return replies`,
});
