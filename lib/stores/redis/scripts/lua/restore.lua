-- Extends a lock as extend.lua does, except that an absent one is put back: a node of a Redlock that restarted would
-- stay without it otherwise. That never counts as held, only as mended.
--
-- KEYS   lock
-- ARGV   owner
--        ttl    in ms
-- reply  1        extended
--        2        put back
--        -1       another owner holds it, or it is no string
--        {error}
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local lock = KEYS[1]
local owner, ttl = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
if holder == owner then return redis.call('PEXPIRE', lock, ttl) end
if not holder then
  local set = redis.pcall('SET', lock, owner, 'PX', ttl)
  return set.err and {set.err} or 2
end
-- @include not-the-holder
