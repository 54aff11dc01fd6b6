-- Removes `entry` from `queue`. If it was the last place, all signs leave with it.
--
-- needs  queue, entry, head
-- sets   head  the first remaining place and its number, if the entry was in the queue

if redis.pcall('ZREM', queue, entry) == 1 then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  if not head[1] then redis.pcall('DEL', queue) end
end
