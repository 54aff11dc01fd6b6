-- Gives up a place in the queue of a lock; a lock that was handed over to it in the meantime goes to the next. Where several hold
-- the lock together, those who waited behind that place are served.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  with its @
--        entry  of the waiter in the queue
-- reply  1        the lock went to the next, or to nobody
--        0        this owner does not hold it
--        -1       it is no string
--        {error}
--
-- @order 1
-- @once

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local owner, entry = ARGV[1], ARGV[2]

local head
-- @include leave-queue
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then
  -- @include not-a-string
end
-- @include is-mine
local crowd, asking
local gave = 1
if not mine then
  if string.sub(value, 1, 1) ~= '~' then return 0 end
  local leaves, renews = string.sub(owner, 1, -2), {}
  -- @include ask-time
  -- @include read-crowd
  if not is_crowd then return 0 end
  gave = left or 0
  if crowd then crowd.is_changed = left ~= nil end
end
-- @include hand-off
if crowd and crowd.problem and not crowd.is_new then return {crowd.problem} end
return gave
