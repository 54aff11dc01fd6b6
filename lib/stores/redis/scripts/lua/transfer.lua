-- Gives a lock a new owner, if the expected owner holds it, and mints a token on request. If the new owner holds the lock already, the
-- command has run twice: the call counts as successful, the ttl restarts, and the token stays. A longer remaining ttl can stay.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
-- ARGV   from   the owner that has the lock, with its @
--        to     the new owner, with its @
--        ttl    in ms
--        mints  '1' to mint a token, otherwise '0'
--        longer '1' if a longer remaining ttl stays, otherwise '0'
-- reply  token    the current token of the lock
--        0        nobody holds it
--        -1       another owner holds it, it is kept, or its value is not a string
--        {error}  the lock was not changed
--
-- A + at the end of the value stays, so waiters keep their places.
--
-- @order 1

local us, minted

local fence = KEYS[1] -- once a call
local lock = KEYS[2]
local from, to, ttl, mints, longer = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
local flag = string.sub(value, -1) == '+' and '+' or ''
local owner = string.sub(value, 1, -17 - #flag)
local latest = string.sub(value, -16 - #flag, -1 - #flag)
if longer == '1' then ttl = math.max(tonumber(ttl), redis.call('PTTL', lock)) end
if owner == to then
  redis.call('PEXPIRE', lock, ttl)
  return latest
end
if owner ~= from then return -1 end
if mints == '1' then
  local count = 1
  -- @include mint
  if problem then return {problem} end
  latest = final
end
local set = redis.pcall('SET', lock, to .. latest .. flag, 'PX', ttl)
return set.err and {set.err} or latest
