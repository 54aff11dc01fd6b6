-- Takes a lock that is free, and mints its fencing token. A lock that this owner value holds already counts as taken by
-- this attempt, since the command can run twice: its ttl starts anew, and its token is a new one.
--
-- KEYS   lock
--        fence  its fencing counter
-- ARGV   owner
--        ttl    in ms
-- reply  token
--        {ttl that is left in ms, holder}  another owner holds it
--        {error}
--
-- @order 3

local us

local lock, fence = KEYS[1], KEYS[2]
local owner, ttl = ARGV[1], ARGV[2]
local count = 1

-- @include take
-- @include mint
-- @include answer-with-token
