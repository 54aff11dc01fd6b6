-- Restarts the ttl of a lock that its owner still holds.
--
-- KEYS   lock
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
-- reply  1        extended
--        0        nobody holds it
--        -1       another owner holds it, or its value is not a string
--        {error}
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local lock = KEYS[1]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  -- @include is-mine
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
-- @include not-a-string
