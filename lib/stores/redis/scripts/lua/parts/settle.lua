-- Writes who holds `lock`, if several do, and then tells those who were granted it by serve.lua.
--
-- needs  lock, queue, us, crowd, notices
--
-- The message names the token of the readers, twice; of permits, which have none, the time of the server, by which its receiver
-- judges whether it is forged. Its bound is the number of the first place that is left.

if crowd and crowd.is_changed then
  -- @include write-crowd
  if notices[1] and not crowd.problem then
    local token = crowd.kind == 's' and string.sub(crowd.head, 4) or string.format('%016.0f', us)
    local next_place = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    local bound = next_place[2] or string.format('%.0f', us)
    for _, each in ipairs(notices) do
      local message = each.ticket .. ' ' .. token .. ' ' .. token .. ' ' .. bound .. ' ' .. lock
      redis.pcall(each.is_sharded and 'SPUBLISH' or 'PUBLISH', each.channel, message)
    end
  end
end
