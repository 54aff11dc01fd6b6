-- Gives up a place in the queue of a lock; a lock that was handed over to it in the meantime goes to the next.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  with its @
--        entry  of the waiter in the queue
-- reply  1        the lock went to the next, or to nobody
--        0        this owner does not hold it
--        -1       it is no string
--        {error}
--
-- @order 1

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local owner, entry = ARGV[1], ARGV[2]

local head
-- @include leave-queue
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
-- @include is-mine
if not mine then return 0 end
-- @include hand-off
return 1
