-- Reads a lock.
--
-- KEYS   lock
-- reply  {ttl that is left in ms, value, time of the server in us}
--        0        nobody holds it
--        {error}
--
-- @order 4

local lock = KEYS[1]

local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local time = redis.call('TIME')
return {redis.call('PTTL', lock), value, time[1] * 1000000 + time[2]}
