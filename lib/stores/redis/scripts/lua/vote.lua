-- Takes a lock that is free on one node of a Redlock, and counts its fencing counter on. Like acquire.lua otherwise.
--
-- KEYS   lock
--        fence       its fencing counter
--        admission       what the node knows about its own restarts, see admit.lua
-- ARGV   owner
--        ttl         in ms
--        epoch       in which the node was admitted, or '' when it votes whenever it answers
--        votes_from  when it began to vote, in microseconds of its clock, or ''
-- reply  token
--        {ttl that is left in ms, holder}  another owner holds it
--        {'wiped', epoch}                  the node has lost its data since it was admitted
--        {error}
--
-- @order 3

local us

local lock, fence, admission = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl = ARGV[1], ARGV[2]
local epoch, votes_from = ARGV[3], ARGV[4]

-- @include take
-- @include count-on
-- @include answer-with-token
