-- Starts the ttl of locks of a Cluster anew that their owners still hold. All that are on one node go in one call, whatever
-- their slots: Redis lets a script use any key of its node. Where it does not, `extend` does it, for the locks of one slot.
--
-- KEYS   once a call:
--        first  one of the locks: it leads the call to their node
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        lock   with the prefix that the client puts before keys
--        owner  with its @
-- reply  1  extended
--        0  not extended here: why is unknown
--
-- @order 2
-- @locks-per-call 400  no call waits for the answer: few large calls cost least
-- @across-slots true

local first = KEYS[1] -- once a call
local ttl = ARGV[1] -- once a call
local lock, owner = ARGV[2], ARGV[3]

local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  return 0
end
-- @include is-mine
return mine and redis.call('PEXPIRE', lock, ttl) or 0
