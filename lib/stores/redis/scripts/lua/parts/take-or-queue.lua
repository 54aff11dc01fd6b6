-- Takes `lock` if it is free, or was handed over to `owner`. Otherwise takes a place in `queue`, unless `entry` stands
-- there, and the script ends here, with the holder or an error.
--
-- needs  lock, fence, queue, owner, ttl, entry, number, fair, us
--
-- Places are numbered by the time of the server. So a waiter that was passed over, or was lost with the queue, takes
-- its place again in the old order.

-- The queue outlives the last sign of its waiters.
local QUEUE_TTL_MS = '10000'

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {holder.err} end
local was_gone
if holder ~= owner and entry ~= '' and (holder or fair == '1') then
  local before = number
  number = tonumber(before) or 0
  if number == 0 then
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    -- @include ask-time
    number = math.max(us, (tonumber(last) or 0) + 1)
  end
  was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
  redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
end
if not holder and fair == '1' then
  local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if first and first ~= entry then
    -- @include hand-off
    holder = redis.call('GET', lock)
  end
end
if holder and holder ~= owner then
  if entry == '' then return {redis.call('PTTL', lock), holder} end
  return {redis.call('PTTL', lock), holder, number, was_gone}
end
local taken = redis.pcall('SET', lock, owner, 'PX', ttl)
if taken.err then return {taken.err} end
if entry ~= '' then redis.pcall('ZREM', queue, entry) end
