-- Turns an exclusive lock into a shared one, with a new owner value and a new token for all who share it. Waiters for a shared lock at
-- the head of the queue join at once. If the new owner shares the lock already, the command has run twice: the call counts as
-- successful, the ttl restarts, and the token stays.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  the exclusive owner, with its @
--        to     the owner that shares the lock
--        ttl    in ms
-- reply  token    of all who share it
--        0        nobody holds it
--        -1       another owner holds it, it is kept, or its value is not a string
--        {error}  the lock was not changed
--
-- @order 1
-- @once

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local owner, to, ttl = ARGV[1], ARGV[2], ARGV[3]

local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
-- @include ask-time
local holders, asking
local finish = string.format('%.0f', math.floor(us / 1000) + ttl)
local leaves, renews = '', {}
renews[to] = finish
-- @include read-holders
if renewed[to] then
  -- @include write-holders
  return holders.problem and {holders.problem} or string.sub(holders.head, 4)
end
-- @include is-mine
if not mine then return -1 end
local kind, weight, most, name, count = 's', 1, 0, to, 1
-- @include mint
if problem then return {problem} end
-- @include add-holder
holders.is_new = false -- if the new value cannot be written, the exclusive lock stays
local notices, is_blocked = {}, false
-- @include serve
-- @include settle
return holders.problem and {holders.problem} or string.sub(holders.head, 4)
