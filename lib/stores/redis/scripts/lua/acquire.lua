-- Takes a lock that is free, and mints its fencing token. A lock that this owner value holds already counts as taken by
-- this attempt, since the command can run twice: its ttl starts anew, and it keeps its token.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
-- reply  token
--        {'refused', ttl that is left in ms, value}  another owner holds it
--        {error}
--
-- @order 3

local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = #KEYS - 1
local reserved -- the token of the next lock, once tokens are reserved

local fence = KEYS[1] -- once a call
local lock = KEYS[2]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

-- @include take-free
