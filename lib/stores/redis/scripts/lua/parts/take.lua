-- Takes `lock` if it is free, or `owner` holds it already. Otherwise the script ends here, with the holder or an error.
--
-- needs  lock, owner, ttl

local free = redis.pcall('SET', lock, owner, 'PX', ttl, 'NX')
if not free then
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= owner then return {redis.call('PTTL', lock), holder} end
  redis.call('PEXPIRE', lock, ttl)
elseif free.err then
  return {free.err}
end
