import { FENCE_TTL_MS } from './fence.js';
import { defineScript } from './script.js';

/**
 * Raises the fencing counter of a lock that its owner still holds to a token, never lowers it: the write-back by which a
 * Redlock makes a token known to a majority before it is issued.
 */
export const RAISE_FENCE = defineScript({
  name: 'raise-fence',
  order: 2,
  keys: ['lock', 'fence'],
  args: ['owner', 'token'],
  body: `
  -- KEYS   lock, fence: its fencing counter
  -- ARGV   owner, token
  -- reply  1 the counter is at or above the token | 0 not held by this owner | {error}
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= owner then return 0 end
  local counter = redis.pcall('GET', fence) or 0
  local at = tonumber(counter)
  if not at then return {type(counter) == 'table' and counter.err or 'ERR fencing counter is not a number'} end
  if at < tonumber(token) then
    local set = redis.pcall('SET', fence, token, 'PX', ${FENCE_TTL_MS})
    if set.err then return {set.err} end
  end
  return 1`,
});
