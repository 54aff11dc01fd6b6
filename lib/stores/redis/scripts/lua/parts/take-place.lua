-- Takes the place of `entry` in `queue`, or keeps it.
--
-- needs  lock, queue, value, us
--        entry, sign
--        number  when the waiter came, by the clock of the server in us, or '' where that is not known: then the place is the last
--        placed  '1' when it had the place before
--        calls   how many calls of the process wait for the lock
-- sets   was_gone
--
-- A waiter that was passed over, or lost with the queue, comes back under the number that it had. No number is in the
-- future, nor below 1, where signs stand: the clock that it was derived from may be wrong. The + tells whoever gives the
-- lock back to look into the queue. What another program wrote stays as it is, and so does the = of a lock that is kept,
-- which nobody gives back.
--
-- With each attempt the process of the waiter gives a sign, for all its places: `sign` and its channel, scored by minus the
-- time of the server, so before all places. The later of its signs says whether it listens. Who takes a place removes
-- the signs that are older than the queue would be. A sign `n` is read by people only: its score says how many calls wait, in the digits
-- below the second, and about when that was told in the others. It is never later than the other signs.

-- The queue outlives the last sign of its waiters.
local QUEUE_TTL_MS = '10000'

local is_new
if number ~= '' then
  is_new = redis.pcall('ZADD', queue, math.max(1, math.min(tonumber(number), us)), entry) == 1
else
  local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  is_new = redis.pcall('ZADD', queue, 'NX', math.max(us, (tonumber(last) or 0) + 1), entry) == 1
end
was_gone = is_new and placed == '1' and 1 or 0
if is_new then redis.pcall('ZREMRANGEBYSCORE', queue, QUEUE_TTL_MS * 1000 - us, '(0') end
local process = string.match(entry, '^%S+( %S+)')
local told = math.max(math.floor(us / 1000000) - 1, 0) * 1000000 + math.min(tonumber(calls), 999999)
redis.pcall('ZADD', queue, -us, sign .. process, -told, 'n' .. process)
redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
  redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
end
