-- Counts the fencing counter on by one. The token of a Redlock is the highest of a majority of its nodes' counters, and
-- is known to that majority at once when these are equal: so the time of the server is taken only where there is no
-- counter, or one that the node may have from an older snapshot.
--
-- needs  fence, admission, epoch, votes_from, us
-- sets   token    or nil
--        problem  why there is none, as a reply
--
-- A counter at or above the time from which the node votes was made since: whoever made it was let vote, so the admission
-- is not asked. One below may be of an older snapshot, which does not know the last tokens, so it is seeded with the
-- time like one that is absent. No counter from before the restart is above it, as long as clocks differ by less than
-- the longest ttl.

local FENCE_TTL_MS = '86400000'
local WIPED = 'wiped'
local problem
local token = redis.pcall('INCRBY', fence, '1')
if type(token) == 'table' then
  problem = {'fencing counter: ' .. token.err}
elseif token >= math.max(1e15, tonumber(votes_from) or 0) then
  redis.call('PEXPIRE', fence, FENCE_TTL_MS)
elseif epoch ~= '' and string.match(tostring(redis.pcall('GET', admission)), '^%d+') ~= epoch then
  if token == 1 then redis.call('DEL', fence) end
  problem = {WIPED, epoch}
else
  -- @include ask-time
  if us > token then token = us end
  local set = redis.pcall('SET', fence, token, 'PX', FENCE_TTL_MS)
  if set.err then problem = {set.err} end
end
