-- Shares a lock that its owner holds alone: it gets another owner value there, and a new token, which all who share it have. Whoever
-- waits to share it at the head of the queue joins at once. A lock that the new owner shares already counts as downgraded by this call,
-- since the command can run twice: its ttl starts anew, and it keeps its token.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  that holds the lock, with its @
--        to     owner that shares it
--        ttl    in ms
-- reply  token    of all who share it
--        0        nobody holds it
--        -1       another owner holds it, it is kept, or it is no string
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
local crowd, asking
local finish = string.format('%.0f', math.floor(us / 1000) + ttl)
local leaves, renews = '', {}
renews[to] = finish
-- @include read-crowd
if renewed[to] then
  -- @include write-crowd
  return crowd.problem and {crowd.problem} or string.sub(crowd.head, 4)
end
-- @include is-mine
if not mine then return -1 end
local kind, weight, most, name, count = 's', 1, 0, to, 1
-- @include mint
if problem then return {problem} end
-- @include join-crowd
crowd.is_new = false -- if it cannot be written, it stays as it was
local notices, is_blocked = {}, false
-- @include serve
-- @include settle
return crowd.problem and {crowd.problem} or string.sub(crowd.head, 4)
