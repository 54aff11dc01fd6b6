-- Takes `entry` out of `queue`. All signs leave with the last place.
--
-- needs  queue, entry
-- sets   head  the first place that is left, and its number, if the entry was there

if redis.pcall('ZREM', queue, entry) == 1 then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  if not head[1] then redis.pcall('DEL', queue) end
end
