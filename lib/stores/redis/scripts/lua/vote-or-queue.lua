-- The attempt of a waiter on one node of a Redlock: a vote as in vote.lua, if the lock is free; otherwise the waiter takes
-- a place in the queue, unless it has one, as in contend.lua.
--
-- KEYS   once a call:
--        admission  what the node knows about its own restarts, see admit.lua
--        for each lock:
--        lock
--        fence      the fencing counter of its shard
--        queue      its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        epoch      in which the node was admitted, or '' when it votes whenever it answers
--        ttl        in ms
--        for each lock:
--        value      the owner with its @, and the proposal, 16 digits
--        entry      of the waiter in the queue, or '' to take no place
--        number     of the place that it has: '' none yet, 0 not known
-- reply  token
--        {token, 'at', time of the node in us}              it is not the proposal
--        {ttl that is left in ms, value}                    another owner holds it, and no place was taken
--        {ttl that is left in ms, value, number, was_gone}  the same, with the number of the place; was_gone is 1 when
--                                                           the waiter had one that was lost, else 0
--        {'wiped', epoch}                                   the node has lost its data since it was admitted
--        {error}
--
-- @order 3

local us, minted

local admission = KEYS[1] -- once a call
local lock, fence, queue = KEYS[2], KEYS[3], KEYS[4]
local epoch, ttl = ARGV[1], ARGV[2] -- once a call
local vote, entry, number = ARGV[3], ARGV[4], ARGV[5]

local owner, proposal = string.sub(vote, 1, -17), string.sub(vote, -16)
local fair, sign = '0', 'h'
-- @include refuse-or-queue
if entry ~= '' then
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
