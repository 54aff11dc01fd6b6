-- Takes a place for `entry` in `queue`, or keeps it.
--
-- needs  lock, queue, value, us, was_gone
--        entry, sign
--        number  the arrival time of the waiter, by the clock of the server in us; '' if it is unknown, for the last place
--        placed  '1' if it had the place before
--        calls   the number of calls of the process that wait for the lock
-- sets   was_gone
--
-- A waiter that was skipped, or that lost its place with the queue, comes back under its old number. The script limits the number to
-- the current time, because the clock that it comes from may be wrong. Numbers below 1 are reserved for signs. The + in the value
-- makes the release look into the queue. Values of other programs stay unchanged, and so does a kept lock, since nobody releases it.
--
-- With each attempt a process gives a sign for all its places: `sign` and its channel. Its score is minus the server time, so signs come
-- before all places. The later of its signs shows whether it listens. Taking a new place removes signs that are older than
-- QUEUE_TTL_MS. An `n` sign is only for people: the last six digits of its score count the waiting calls, and the other digits are
-- the approximate time in seconds. That time is never later than the other signs.

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
local calls_at = math.max(math.floor(us / 1000000) - 1, 0) * 1000000 + math.min(tonumber(calls), 999999)
redis.pcall('ZADD', queue, -us, sign .. process, -calls_at, 'n' .. process)
redis.call('PEXPIRE', queue, QUEUE_TTL_MS)
if value and #value > 17 and string.find(string.sub(value, -17), '^@%d+$') then
  redis.pcall('SET', lock, value .. '+', 'KEEPTTL')
end
