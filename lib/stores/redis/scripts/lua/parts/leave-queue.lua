-- Takes `entry` out of `queue`. All signs leave with the last place.
--
-- needs  queue, entry

if redis.pcall('ZREM', queue, entry) == 1 then
  if not redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1')[1] then redis.pcall('DEL', queue) end
end
