-- Ends the script with the holder, or an error, if another owner holds `lock`, or it goes to another. The attempt takes a
-- place in `queue` before, unless `entry` stands there or is ''. Otherwise the lock is free, or `owner` holds it.
--
-- needs  lock, queue, owner, entry, number, fair, us, minted, fence
-- sets   value, mine
--
-- Places are numbered by the time of the server. So a waiter that was passed over, or was lost with the queue, takes
-- its place again in the old order. The + tells whoever gives the lock back to look into the queue. What another program
-- wrote stays as it is.

-- The queue outlives the last sign of its waiters.
local QUEUE_TTL_MS = '10000'

local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local mine = value and (string.sub(value, 1, -17) == owner or string.sub(value, 1, -18) == owner)
local was_gone
if not mine and entry ~= '' and (value or fair == '1') then
  local before = number
  number = tonumber(before) or 0
  if number == 0 then
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    -- @include ask-time
    number = math.max(us, (tonumber(last) or 0) + 1)
  end
  was_gone = redis.pcall('ZADD', queue, 'NX', number, entry) == 1 and before ~= '' and 1 or 0
  redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
  if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
    redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
  end
end
if not value and fair == '1' then
  local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if first and first ~= entry then
    -- @include hand-off
    value = redis.call('GET', lock)
    mine = value and string.sub(value, 1, -18) == owner
  end
end
if value and not mine then
  if entry == '' then return {redis.call('PTTL', lock), value} end
  return {redis.call('PTTL', lock), value, number, was_gone}
end
