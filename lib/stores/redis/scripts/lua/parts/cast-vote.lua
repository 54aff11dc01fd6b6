-- Ends a script that has taken `lock` on a node of a Redlock, with the proposal as its token. Returns the token that the node votes
-- for: the proposal, moved to within MAX_PROPOSAL_DISTANCE_US of the time of the node, and above the counter. The counter is then set
-- to that token.
--
-- needs  lock, fence, admission, epoch, ttl
--        vote  the owner with its @, and the proposal, 16 digits
--        flag  the end of the value: '+', or ''
--
-- An existing counter proves that the node has voted since it last lost its data. It was admitted then, so the script does not check
-- the admission. A counter from an older snapshot is behind the time of the node and changes nothing.

local MAX_PROPOSAL_DISTANCE_US = 1000000
local WIPED = 'wiped'
local proposal = string.sub(vote, -16)
local time = redis.call('TIME')
local us
local is_near = string.sub(proposal, 1, -7) == time[1] -- in the same second, which is the usual case
if not is_near then
  us = time[1] * 1000000 + time[2]
  is_near = math.abs(proposal - us) <= MAX_PROPOSAL_DISTANCE_US
end
local before
if is_near then before = redis.pcall('SET', fence, proposal, 'GET') else before = redis.pcall('GET', fence) end
if is_near and type(before) == 'string' and #before == 16 and before < proposal then return proposal end -- the usual case
local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
if problem then
  redis.call('DEL', lock)
  return {problem}
end
if not before and epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  redis.call('DEL', lock, fence)
  return {WIPED, epoch}
end
if not before and is_near then return proposal end
us = us or time[1] * 1000000 + time[2]
local nearest = math.min(math.max(tonumber(proposal), us - MAX_PROPOSAL_DISTANCE_US), us + MAX_PROPOSAL_DISTANCE_US)
local highest = math.max((tonumber(before or 0) or 0) + 1, nearest)
local token = string.format('%016.0f', highest)
-- @include write-counter
if not problem then problem = redis.pcall('SET', lock, string.sub(vote, 1, -17) .. token .. flag, 'PX', ttl).err end
if problem then
  if before then redis.pcall('SET', fence, before) else redis.pcall('DEL', fence) end
  redis.call('DEL', lock)
  return {problem}
end
return {'at', token, us}
