-- Takes a free lock on one node of a Redlock, with the token that the client proposes, or one near it. If the same owner value holds
-- the lock already, the command has run twice: the call counts as successful, and the token stays.
--
-- KEYS   once a call:
--        admission  what the node knows about its own restarts, see admit.lua
--        for each lock:
--        lock
--        fence      the fencing counter of its shard
-- ARGV   once a call:
--        epoch      in which the node was admitted, or '' if the node votes without admission
--        ttl        in ms
--        for each lock:
--        vote       the owner with its @, and the proposal, 16 digits
-- reply  token
--        {'at', token, time of the node in us}    the token differs from the proposal
--        {'refused', remaining ttl in ms, value}  another owner holds it
--        {'wiped', epoch}                         the node has lost its data since its admission
--        {error}
--
-- @order 3

local admission = KEYS[1] -- once a call
local lock, fence = KEYS[2], KEYS[3]
local epoch, ttl = ARGV[1], ARGV[2] -- once a call
local vote = ARGV[3]

local taken = redis.pcall('SET', lock, vote, 'PX', ttl, 'NX')
if not taken then
  local owner, value = string.sub(vote, 1, -17), redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  -- @include is-mine
  if not mine then return {'refused', redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
local flag = ''
-- @include cast-vote
