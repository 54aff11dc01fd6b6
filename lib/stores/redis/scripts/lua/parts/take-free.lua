-- Acquires `lock` if it is free, mints its fencing token, and returns the reply.
--
-- needs  now, locks, reserved
--        fence, lock, ttl, owner
-- sets   reserved
--
-- The time of the server is nearly always ahead of the counter, so the script writes the token into the value before it checks the
-- counter. The first lock of a call reserves a token for each of its locks, so the counter is written only once.

local token = reserved or now
local taken = redis.pcall('SET', lock, owner .. token, 'PX', ttl, 'NX')
if not taken then
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return {value.err} end
  -- @include is-mine
  if not mine then return {'refused', redis.call('PTTL', lock), value} end
  redis.call('PEXPIRE', lock, ttl)
  return string.match(value, '@(%d+)%+?$')
end
if taken.err then return {taken.err} end
if not reserved then
  local last = locks == 1 and now or string.format('%016.0f', tonumber(now) + locks - 1)
  local before = redis.pcall('SET', fence, last, 'GET')
  if before and (type(before) == 'table' or #before ~= 16 or before >= now) then
    -- A counter that is not a number counts as missing.
    local counter = type(before) == 'string' and tonumber(before)
    local problem = type(before) == 'table' and 'ERR the fencing counter ' .. fence .. ': ' .. before.err or nil
    if counter and counter >= tonumber(now) then
      token = string.format('%016.0f', counter + 1)
      local highest = counter + locks
      -- @include write-counter
      if not problem then problem = redis.pcall('SET', lock, owner .. token, 'PX', ttl).err end
      if problem then redis.pcall('SET', fence, before) end
    end
    if problem then
      redis.call('DEL', lock)
      return {problem}
    end
  end
end
if locks > 1 then reserved = string.format('%016.0f', tonumber(token) + 1) end
return token
