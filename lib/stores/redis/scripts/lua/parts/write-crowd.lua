-- Writes who holds `lock`: until the time of the last of them is over. If it cannot be written, a lock that was given back to a
-- crowd that is new is free, and any other stays as it is.
--
-- needs  lock, crowd, us
-- sets   crowd.problem  what is wrong, as Redis says it, or nil

local text = crowd.head .. ' ' .. table.concat(crowd.texts, ' ')
local ttl_left = math.max(1, crowd.last - math.floor(us / 1000))
crowd.problem = redis.pcall('SET', lock, text, 'PX', string.format('%.0f', ttl_left)).err
if crowd.problem and crowd.is_new then redis.call('DEL', lock) end
