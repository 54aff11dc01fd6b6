-- Gives back a lock that its owner still holds: to the first in its queue, or to nobody. A value without + at its end says
-- that nobody can stand in the queue. A lock that is kept is given back, too: when its time was over before that was confirmed.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  with its @
-- reply  1        given back
--        0        nobody holds it
--        -1       another owner holds it, or it is no string
--        {error}
--
-- @order 1

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local owner = ARGV[1]

local value = redis.pcall('GET', lock)
if type(value) == 'string' then
  if string.sub(value, 1, -17) == owner then return redis.call('DEL', lock) end
  if string.sub(value, 1, -18) ~= owner then return -1 end
  local crowd, asking
  -- @include hand-off
  return 1
end
-- @include not-a-string
