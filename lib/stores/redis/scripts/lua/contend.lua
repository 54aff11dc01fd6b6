-- The attempt of a waiter: takes the lock if it is free or was handed over to this owner, and mints its tokens;
-- otherwise takes a place in the queue, unless the waiter has one.
--
-- KEYS   lock
--        fence   its fencing counter
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   owner
--        ttl     in ms
--        count   how many tokens to mint
--        entry   of the waiter in the queue, or '' to take no place
--        number  of the place that it has: '' none yet, 0 not known
--        fair    '1' when a free lock goes to the first in the queue, whoever asks for it; else '0'
-- reply  first token
--        {ttl that is left in ms, holder}                    another owner holds it, and no place was taken
--        {ttl that is left in ms, holder, number, was_gone}  the same, with the number of the place; was_gone is 1 when
--                                                            the waiter had one that was lost, else 0
--        {error}
--
-- @order 3

local us

local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, count = ARGV[1], ARGV[2], ARGV[3]
local entry, number, fair = ARGV[4], ARGV[5], ARGV[6]

-- @include take-or-queue
-- @include mint
-- @include answer-with-token
