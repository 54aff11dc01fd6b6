-- Acquires a lock if it is free, and mints its fencing token. If the same owner value holds the lock already, the command has run
-- twice: the call counts as successful, the ttl restarts, and the token stays.
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
--        {'refused', remaining ttl in ms, value}  another owner holds it
--        {error}
--
-- @order 3

local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = #KEYS - 1
local reserved -- the token of the next lock, once this call has reserved tokens

local fence = KEYS[1] -- once a call
local lock = KEYS[2]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

-- @include take-free
