-- Reads a lock. The ttl of the fencing counter starts at the acquisition, so the part of it that has passed says for
-- how long the lock has been held, by no clock but the server's.
--
-- KEYS   lock
--        fence  its fencing counter
-- reply  {ttl that is left in ms, holder, fencing token or '', ttl that is left of the counter in ms}
--        0        nobody holds it
--        {error}
--
-- @order 4

local lock, fence = KEYS[1], KEYS[2]

local holder = redis.pcall('GET', lock)
if not holder then return 0 end
if type(holder) == 'table' then return {holder.err} end
local token = redis.pcall('GET', fence)
if not tonumber(token) then token = '' end
return {redis.call('PTTL', lock), holder, token, redis.call('PTTL', fence)}
