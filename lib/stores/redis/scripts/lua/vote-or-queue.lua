-- The attempt of a waiter on one node of a Redlock. Like contend.lua, except that it counts the fencing counter on, by
-- one.
--
-- KEYS   lock
--        fence       its fencing counter
--        queue       its waiters, a sorted set in the order of their arrival
--        admission       what the node knows about its own restarts, see admit.lua
-- ARGV   owner
--        ttl         in ms
--        count       not used
--        entry       of the waiter in the queue, or '' to take no place
--        number      of the place that it has: '' none yet, 0 not known
--        fair        '1' when a free lock goes to the first in the queue, whoever asks for it; else '0'
--        epoch       in which the node was admitted, or '' when it votes whenever it answers
--        votes_from  when it began to vote, in microseconds of its clock, or ''
-- reply  token
--        {ttl that is left in ms, holder}                    another owner holds it, and no place was taken
--        {ttl that is left in ms, holder, number, was_gone}  the same, with the number of the place; was_gone is 1 when
--                                                            the waiter had one that was lost, else 0
--        {'wiped', epoch}                                    the node has lost its data since it was admitted
--        {error}
--
-- @order 3

local us

local lock, fence, queue, admission = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, count = ARGV[1], ARGV[2], ARGV[3]
local entry, number, fair = ARGV[4], ARGV[5], ARGV[6]
local epoch, votes_from = ARGV[7], ARGV[8]

-- @include take-or-queue
-- @include count-on
-- @include answer-with-token
