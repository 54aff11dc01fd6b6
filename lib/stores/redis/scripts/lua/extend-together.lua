-- Restarts the ttl of one of the owners that hold a lock together, and leaves the ttls of the others unchanged. The key lives until
-- the last of them expires.
--
-- KEYS   lock
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner
-- reply  1        extended
--        0        nobody holds it, or the hold of this owner has expired
--        -1       only other owners hold it, or its value is not a string
--        {error}
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local us

local lock = KEYS[1]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
local holders
local leaves, renews = '', {}
-- @include ask-time
renews[owner] = string.format('%.0f', math.floor(us / 1000) + ttl)
-- @include read-holders
if not is_together then return -1 end
if not holders or renewed[owner] == false then return 0 end
if not renewed[owner] then return -1 end
-- @include write-holders
return holders.problem and {holders.problem} or 1
