-- Gives up a place in the queue of a lock; a lock that was handed over to it in the meantime goes to the next.
--
-- KEYS   lock
--        fence  its fencing counter
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner
--        entry  of the waiter in the queue
-- reply  1        the lock went to the next, or to nobody
--        0        this owner does not hold it
--        {error}
--
-- @order 1

local us

local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner, entry = ARGV[1], ARGV[2]

redis.pcall('ZREM', queue, entry)
local holder = redis.pcall('GET', lock)
if holder ~= owner then return type(holder) == 'table' and {holder.err} or 0 end
-- @include hand-off
return 1
