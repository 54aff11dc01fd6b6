-- Writes the holders of `lock` if they have changed, and then notifies those that serve.lua has added.
--
-- needs  lock, queue, us, holders, notices
--
-- The message contains the token of the readers, twice. Permits have no token: their message has the time of the server instead, which
-- the receiver uses to detect forged messages. The bound is the number of the first remaining place.

if holders and holders.is_changed then
  -- @include write-holders
  if notices[1] and not holders.problem then
    local token = holders.kind == 's' and string.sub(holders.head, 4) or string.format('%016.0f', us)
    local next_place = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    local bound = next_place[2] or string.format('%.0f', us)
    for _, each in ipairs(notices) do
      local message = each.ticket .. ' ' .. token .. ' ' .. token .. ' ' .. bound .. ' ' .. lock
      redis.pcall(each.is_sharded and 'SPUBLISH' or 'PUBLISH', each.channel, message)
    end
  end
end
