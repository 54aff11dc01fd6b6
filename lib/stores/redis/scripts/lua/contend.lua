-- The attempt of a waiter: takes the lock if it is free or was handed over to this owner, and mints its tokens;
-- otherwise takes a place in the queue, unless the waiter has one.
--
-- KEYS   once a call:
--        fence   the fencing counter
--        for each lock:
--        lock
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        fair    '1' when a free lock goes to the first in the queue, whoever asks for it; else '0'
--        for each lock:
--        owner   with its @
--        ttl     in ms, not shared: calls with different ttls keep their order in the queue
--        count   how many tokens to mint: the value gets the last of them
--        entry   of the waiter in the queue, or '' to take no place
--        number  of the place that it has: '' none yet, 0 not known
-- reply  first token
--        {ttl that is left in ms, value}                    another owner holds it, and no place was taken
--        {ttl that is left in ms, value, number, was_gone}  the same, with the number of the place; was_gone is 1 when
--                                                           the waiter had one that was lost, else 0
--        {error}
--
-- @order 3

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local fair, sign = ARGV[1], ARGV[2] -- once a call
local owner, ttl, count = ARGV[3], ARGV[4], ARGV[5]
local entry, number = ARGV[6], ARGV[7]

-- @include refuse-or-queue
count = tonumber(count)
-- @include mint
if not problem then problem = redis.pcall('SET', lock, owner .. final .. '+', 'PX', ttl).err end
if problem then
  redis.call('DEL', lock)
  return {problem}
end
if entry ~= '' then
  -- @include leave-queue
end
return token
