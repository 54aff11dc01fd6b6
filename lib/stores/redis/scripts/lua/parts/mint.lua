-- Mints `count` fencing tokens. A token is the time of the server in microseconds. If the counter has reached that time, the token is
-- one more than the counter: grants came within the same microsecond, or a clock was set back. Therefore tokens keep increasing after
-- the counter is lost, and on a promoted replica that had not received the last grants.
--
-- needs  fence, count, us
--        minted  the last token that this call has minted, or nil
-- sets   us, minted, count
--        token, final  the first and the last of them, as texts of 16 digits
--        problem       the error of Redis, or nil
--
-- The time is nearly always ahead of the counter. So the script writes it first and checks the old value afterwards. A counter that is
-- not a number counts as lost. If the counter has reached the time, the script mints a single token. Unused tokens of a block would push
-- the counter ahead of the clock, and a lost counter falls back to the clock. For the same reason all blocks of one call together stay
-- within MAX_TOKEN_LEAD_US, because the time does not advance during a call.

local MAX_TOKEN_LEAD_US = 1000
-- @include ask-time
local first = math.max(us, (minted or 0) + 1)
count = math.max(1, math.min(count, us + MAX_TOKEN_LEAD_US - first + 1))
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
