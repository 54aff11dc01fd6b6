-- Mints `count` fencing tokens. A token is the time of the server in microseconds, or one more than the counter where
-- that has reached the time: then grants are less than a microsecond apart, or a clock was set back. So tokens grow on
-- when the counter was lost, and also when it is that of a replica that had not received the last grants before it took
-- over.
--
-- needs  fence, count, us
-- sets   token    the first of them, or nil
--        problem  why there is none, as a reply: of Redis, or the counter is no number and stays as it is
--
-- The time is nearly always ahead: so it is written first, and what was there before is looked at afterwards. Redis
-- writes a whole number below 2^53 out in full; the time stays below until the year 2255.

local FENCE_TTL_MS = '86400000'
local token, problem
-- @include ask-time
local last = redis.pcall('SET', fence, us + count - 1, 'PX', FENCE_TTL_MS, 'GET')
if not last then
  token = us
elseif type(last) == 'table' then
  problem = {last.err}
else
  local number = tonumber(last)
  if not number then
    redis.pcall('SET', fence, last, 'PX', FENCE_TTL_MS)
    problem = {'ERR fencing counter is not an integer'}
  elseif number < us then
    token = us
  else
    local set = redis.pcall('SET', fence, number + count, 'PX', FENCE_TTL_MS)
    if set.err then problem = {set.err} else token = number + 1 end
  end
end
