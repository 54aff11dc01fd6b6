-- Attempts to acquire a lock for a waiter on one node of a Redlock. A free lock gets a vote as in vote.lua. Otherwise the waiter takes
-- a place in the queue, unless it has one, as in turn.lua. The clock of the node numbers the places.
--
-- KEYS   once a call:
--        admission  what the node knows about its own restarts, see admit.lua
--        for each lock:
--        lock
--        fence      the fencing counter of its shard
--        queue      its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        epoch      in which the node was admitted, or '' if the node votes without admission
--        ttl        in ms
--        for each lock:
--        vote       the owner with its @, and the proposal, 16 digits
--        entry      of the waiter in the queue, or '' to take no place
--        placed     '1' if the place was taken before, otherwise '0'
--        calls      the number of calls of the process that wait for the lock
-- reply  as in vote.lua, except
--        {'refused', remaining ttl in ms, value, was_gone}  another owner holds it; was_gone is 1 if the waiter's place was lost,
--                                                           otherwise 0
--
-- @order 3

local us

local admission = KEYS[1] -- once a call
local lock, fence, queue = KEYS[2], KEYS[3], KEYS[4]
local epoch, ttl = ARGV[1], ARGV[2] -- once a call
local vote, entry, placed, calls = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local owner = string.sub(vote, 1, -17)
local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
-- @include is-mine
if value and not mine then
  local was_gone = 0
  if entry ~= '' then
    local sign, number = 'h', ''
    -- @include ask-time
    -- @include take-place
  end
  return {'refused', redis.call('PTTL', lock), value, was_gone}
end
if entry ~= '' then
  local head
  -- @include leave-queue
end
if mine then
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
local flag = '+'
local taken = redis.pcall('SET', lock, vote .. flag, 'PX', ttl)
if taken.err then return {taken.err} end
-- @include cast-vote
