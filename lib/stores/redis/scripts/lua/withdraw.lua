-- Gives up a place in the queue of a lock. If the lock was handed over to that place in the meantime, it goes to the next one. If
-- several owners hold the lock together, the places behind that place are served.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   owner  with its @
--        entry  of the waiter in the queue
-- reply  1        the lock went to the next place, or became free
--        0        this owner does not hold it
--        -1       its value is not a string
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
local holders, asking
local gave = 1
if not mine then
  if string.sub(value, 1, 1) ~= '~' then return 0 end
  local leaves, renews = string.sub(owner, 1, -2), {}
  -- @include ask-time
  -- @include read-holders
  if not is_together then return 0 end
  gave = left or 0
  if holders then holders.is_changed = left ~= nil end
end
-- @include hand-off
if holders and holders.problem and not holders.is_new then return {holders.problem} end
return gave
