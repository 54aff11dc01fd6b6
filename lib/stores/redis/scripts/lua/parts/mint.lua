-- Mints `count` fencing tokens. A token is the time of the server in microseconds, or one more than the counter where
-- that has reached the time: then grants are less than a microsecond apart, or a clock was set back. So tokens grow on
-- when the counter was lost, and also when it is that of a replica that had not received the last grants before it took
-- over.
--
-- needs  fence, count, us
--        minted  the last token that this call has minted, or nil
-- sets   token, final  the first and the last of them, as texts of 16 digits
--        problem       why there are none, as Redis says it, or nil
--
-- The time is nearly always ahead: so it is written first, and what was there before is looked at afterwards. A counter
-- that is no number counts as lost. Where it has reached the time one token is minted, however many are asked for: blocks of which
-- few are used must not drive the counter ahead of the clock, to which it would fall back when it is lost. For the same reason
-- the blocks of one call, whose time stands still, together reach no further ahead than MOST_AHEAD_US.

local MOST_AHEAD_US = 1000
-- @include ask-time
local first = math.max(us, (minted or 0) + 1)
count = math.max(1, math.min(count, us + MOST_AHEAD_US - first + 1))
local token = string.format('%016.0f', first)
local final = count == 1 and token or string.format('%016.0f', first + count - 1)
local before = redis.pcall('SET', fence, final, 'GET')
local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
local counter = not problem and not minted and tonumber(before or 0)
if counter and counter >= first then
  count = 1
  first = counter + 1
  local highest = first
  token = string.format('%016.0f', first)
  final = string.format('%016.0f', highest)
  -- @include write-counter
  if problem then redis.pcall('SET', fence, before) end
end
if not problem then minted = first + count - 1 end
