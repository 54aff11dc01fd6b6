-- Gives back a lock that its owner still holds: to the first in its queue, or to nobody.
--
-- KEYS   lock
--        fence  its fencing counter
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner
-- reply  1        given back
--        0        nobody holds it
--        -1       another owner holds it, or it is no string
--        {error}
--
-- @order 1

local us

local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[1]

local holder = redis.pcall('GET', lock)
if holder == owner then
  -- @include hand-off
  return 1
end
if not holder then return 0 end
-- @include not-the-holder
