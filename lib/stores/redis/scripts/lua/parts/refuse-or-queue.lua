-- Ends the script with the holder, or an error, if another owner holds `lock`, or it goes to another. The attempt takes a
-- place in `queue` before, unless `entry` stands there or is ''. Otherwise the lock is free, or `owner` holds it.
--
-- needs  lock, queue, owner, entry, number, sign, fair, us, minted, fence
-- sets   value, mine
--
-- Places are numbered by the time of the server. So a waiter that was passed over, or was lost with the queue, takes
-- its place again in the old order. The + tells whoever gives the lock back to look into the queue. What another program
-- wrote stays as it is, and so does the = of a lock that is kept, which nobody gives back.
--
-- With each attempt the process of the waiter gives a sign, for all its places: `sign` and its channel, scored by minus the
-- time of the server, so before all places. The later of its two signs says whether it listens. Who takes a place removes
-- the signs that are older than the queue would be.

-- The queue outlives the last sign of its waiters.
local QUEUE_TTL_MS = '10000'

local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
local other_is_first
if not value and fair == '1' then
  local first_entry = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1')[1]
  other_is_first = first_entry and first_entry ~= entry
end
local was_gone
if not mine and entry ~= '' then
  -- @include ask-time
  local process = sign .. string.match(entry, '^%S+( %S+)')
  if value or other_is_first then
    local before = number
    number = tonumber(before) or 0
    if number == 0 then
      local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      number = math.max(us, (tonumber(last) or 0) + 1)
    end
    local is_new = redis.pcall('ZADD', queue, 'NX', number, entry) == 1
    was_gone = is_new and before ~= '' and 1 or 0
    if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
    redis.pcall('ZADD', queue, -us, process)
    redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
    if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
      redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
    end
  else
    redis.pcall('ZADD', queue, 'XX', -us, process)
  end
end
if other_is_first then
  -- @include hand-off
  value = redis.call('GET', lock)
  mine = value and string.sub(value, 1, -18) == owner
end
if value and not mine then
  if entry == '' then return {redis.call('PTTL', lock), value} end
  return {redis.call('PTTL', lock), value, number, was_gone}
end
