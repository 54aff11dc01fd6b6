-- Acquires a lock if it is free and nobody waits for it, as acquire.lua does.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters
-- ARGV   once a call:
--        ttl    in ms
--        for each lock:
--        owner  with its @
-- reply  'queue'  the lock has a queue, so turn.lua must serve it in order: nothing was changed
--        otherwise as in acquire.lua
--
-- @order 3

local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local locks = (#KEYS - 1) / 2
local reserved -- the token of the next lock, once this call has reserved tokens

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local ttl = ARGV[1] -- once a call
local owner = ARGV[2]

local first = redis.pcall('ZRANGE', queue, 0, 0)
if first[1] or first.err then return 'queue' end
-- @include take-free
