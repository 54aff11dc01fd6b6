-- Writes who holds `lock`: until the time of the last of them is over. If it cannot be written, a lock that was given back to a
-- crowd that is new is free, and any other stays as it is. A server whose memory is full refuses the first write of a script alone, and
-- PEXPIRE never: so those who hold a lock already are extended, and leave, as the holder of an exclusive one. Nobody joins them then.
--
-- needs  lock, crowd, us
-- sets   crowd.problem  what is wrong, as Redis says it, or nil

local text = crowd.head .. ' ' .. table.concat(crowd.texts, ' ')
local ttl_left = string.format('%.0f', math.max(1, crowd.last - math.floor(us / 1000)))
if not crowd.has_grown then redis.call('PEXPIRE', lock, ttl_left) end
crowd.problem = redis.pcall('SET', lock, text, 'PX', ttl_left).err
if crowd.problem and crowd.is_new then redis.call('DEL', lock) end
