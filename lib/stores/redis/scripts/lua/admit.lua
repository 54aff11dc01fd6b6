-- Asks a node of a Redlock for the time since which it knows all locks that it granted. The node stores the answer in a
-- separate key, with the longest ttl in use and the run of the server that was asked last. A node that loses its data also loses this key.
--
-- KEYS   admission
-- ARGV   run      changes with each start of a server that may have lost data
--        uptime   of the server, in s
--        longest  ttl in use, in ms, as far as the caller knows
-- reply  {epoch, ms since then, longest ttl in ms, time of the server in us}
--        {error}
--
-- @order 0

local admission = KEYS[1]
local run, uptime, longest = ARGV[1], ARGV[2], ARGV[3]

local known = redis.pcall('GET', admission) or ''
if type(known) == 'table' then return {'ERR ' .. admission .. ': ' .. known.err} end
local since, known_longest, known_run = string.match(known, '^(%d+) (%d+) (.+)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not since then
  since = now
elseif known_run ~= run then
  since = now - uptime * 1000000
end
longest = math.max(tonumber(longest), tonumber(known_longest or 0))
local epoch = string.format('%.0f', since)
local changed = string.format('%s %.0f %s', epoch, longest, run)
if changed ~= known then
  local set = redis.pcall('SET', admission, changed)
  if set.err then return {set.err} end
end
return {epoch, math.floor((now - since) / 1000), longest, now}
