-- Extends a lock as extend.lua does, and records how many calls of the owner's process wait for it. Only people read that number.
--
-- KEYS   lock
--        behind  the owner with its @, and the number of calls
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
--        calls  the number of waiting calls
--        shown  how long to keep that number, in ms
-- reply  1        extended
--        0        nobody holds it
--        -1       another owner holds it, or its value is not a string
--        {error}
--
-- The lock is extended even if the number cannot be written, for example because the server has no memory left.
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local lock, behind = KEYS[1], KEYS[2]
local ttl = ARGV[1] -- once a call
local owner, calls, shown = ARGV[2], ARGV[3], ARGV[4]

local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  -- @include is-mine
  if not mine then return -1 end
  redis.call('PEXPIRE', lock, ttl)
  redis.pcall('SET', behind, owner .. calls, 'PX', shown)
  return 1
end
-- @include not-a-string
