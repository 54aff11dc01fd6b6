-- Gives a lock another owner, if a certain one has it, and mints a token for the new one, or leaves the lock the token that it has. A
-- lock that the new owner has already counts as transferred by this call, since the command can run twice: its ttl starts anew,
-- unless more is left and may stay, and it keeps its token.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
-- ARGV   from   owner that has the lock, with its @
--        to     owner that gets it, with its @
--        ttl    in ms
--        mints  '1' to mint a token, else '0'
--        longer '1' if a longer time that is left stays, else '0'
-- reply  token    that the lock has now
--        0        nobody holds it
--        -1       another owner holds it, it is kept, or it is no string
--        {error}  the lock was not changed
--
-- A + at the end of the value stays there: whoever waits keeps its place.
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
