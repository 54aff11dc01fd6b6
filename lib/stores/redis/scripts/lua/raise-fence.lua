-- Raises the fencing counter of a lock that its owner still holds to a token, and never lowers it: the write-back by
-- which a Redlock makes a token known to a majority before it is issued.
--
-- KEYS   lock
--        fence  its fencing counter
-- ARGV   owner
--        token
-- reply  1        the counter is at or above the token
--        0        this owner does not hold the lock
--        {error}
--
-- @order 2

local FENCE_TTL_MS = '86400000'

local lock, fence = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {holder.err} end
if holder ~= owner then return 0 end
local counter = redis.pcall('GET', fence) or 0
local last = tonumber(counter)
if not last then return {type(counter) == 'table' and counter.err or 'ERR fencing counter is not a number'} end
if last < tonumber(token) then
  local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
  if set.err then return {set.err} end
end
return 1
