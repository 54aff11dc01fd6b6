-- Releases a lock that its owner still holds: the lock goes to the first place in its queue, or becomes free. If the value does not
-- end in +, the queue is empty. The script also releases a kept lock, whose time may have ended before the server confirmed it.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  with its @
-- reply  1        released
--        0        nobody holds it
--        -1       another owner holds it, or its value is not a string
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
  local holders, asking
  -- @include hand-off
  return 1
end
-- @include not-a-string
