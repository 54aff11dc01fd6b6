-- Writes the holders of `lock`, with the expiry of the last of them. If the write fails, a newly created value is deleted, and an
-- existing one stays. A server whose memory is full rejects the first write of a script, but never PEXPIRE. Therefore existing holders
-- can still be extended and can still leave, but nobody can join.
--
-- needs  lock, holders, us
-- sets   holders.problem  the error of Redis, or nil

local text = holders.head .. ' ' .. table.concat(holders.texts, ' ')
local ttl_left = string.format('%.0f', math.max(1, holders.last - math.floor(us / 1000)))
if not holders.has_grown then redis.call('PEXPIRE', lock, ttl_left) end
holders.problem = redis.pcall('SET', lock, text, 'PX', ttl_left).err
if holders.problem and holders.is_new then redis.call('DEL', lock) end
