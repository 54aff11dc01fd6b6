-- Extends a lock as extend.lua does, and writes down how many calls of its owner's process wait behind it, for people to read.
--
-- KEYS   lock
--        told   what its holder has told: the owner with its @, and the number of calls
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
--        calls  how many wait
--        shown  for how long that is shown, in ms
-- reply  1        extended
--        0        nobody holds it
--        -1       another owner holds it, or it is no string
--        {error}
--
-- What cannot be written down, as in a server whose memory is full, is not shown: the lock is extended all the same.
--
-- @order 2
-- @locks-per-call 100  no call waits for the answer: few large calls cost least

local lock, told = KEYS[1], KEYS[2]
local ttl = ARGV[1] -- once a call
local owner, calls, shown = ARGV[2], ARGV[3], ARGV[4]

local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  -- @include is-mine
  if not mine then return -1 end
  redis.call('PEXPIRE', lock, ttl)
  redis.pcall('SET', told, owner .. calls, 'PX', shown)
  return 1
end
-- @include not-a-string
