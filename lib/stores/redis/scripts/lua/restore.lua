-- Extends a lock as extend.lua does, but writes it again if it is missing. Otherwise a node of a Redlock that has restarted would stay
-- without the lock. A restored lock does not count as held in this round.
--
-- KEYS   lock
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
--        token  16 digits
-- reply  1        extended
--        2        restored
--        -1       another owner holds it, or its value is not a string
--        {error}
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local lock = KEYS[1]
local ttl = ARGV[1] -- once a call
local owner, token = ARGV[2], ARGV[3]

local value = redis.pcall('GET', lock)
if not value then
  local set = redis.pcall('SET', lock, owner .. token .. '+', 'PX', ttl) -- with +, since its queue may still exist
  return set.err and {set.err} or 2
end
if type(value) == 'string' then
  -- @include is-mine
  return mine and redis.call('PEXPIRE', lock, ttl) or -1
end
-- @include not-a-string
