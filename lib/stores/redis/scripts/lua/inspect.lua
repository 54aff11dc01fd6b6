-- Reads a lock, and the first places in its queue.
--
-- KEYS   lock
--        queue  its waiters, a sorted set in the order of their arrival
--        told   how many calls wait behind it, see extend-and-tell.lua
-- reply  {ttl that is left in ms, value, time of the server in us, calls, ticket, told, ...}
--        0        nobody holds it
--        {error}
--
-- calls is what the one who holds it now has told, or ''. The tickets are in the order of their places. told is the score of the sign n of its process, see
-- take-place.lua, or '' if that has given none. Left out are those of processes that are silent, as in hand-off.lua, and of
-- versions to come. A user that may not read the queue sees none.
--
-- @order 4
-- @locks-per-call 5  with a hundred places each, so many take Redis a millisecond

local SILENT_US = 2000000
local MOST_PLACES = '100'

local lock, queue, told = KEYS[1], KEYS[2], KEYS[3]

local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local owner, calls = string.match(tostring(redis.pcall('GET', told)), '^(.+@)(%d+)$')
-- @include is-mine
local reply = {redis.call('PTTL', lock), value, us, mine and calls or ''}
if string.find(string.sub(value, -17), '^@%d+$') then return reply end -- nobody can stand in the queue
local latest = -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0)
for _, entry in ipairs(redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', MOST_PLACES)) do
  local channel, ticket = string.match(entry, '^[gsw] (%S+) (.+)$')
  if not ticket then channel, ticket = string.match(entry, '^p%d+/%d+ (%S+) (.+)$') end
  if ticket then
    local signs = redis.pcall('ZMSCORE', queue, 'h ' .. channel, 'u ' .. channel, 'd ' .. channel, 'n ' .. channel)
    local sign_at = 0
    for at = 1, 3 do sign_at = math.max(sign_at, -(tonumber(signs[at]) or 0)) end
    local is_silent = math.min(us, latest) - sign_at > SILENT_US
    if not is_silent then
      reply[#reply + 1] = string.match(ticket, '^(.+)~%d+$') or ticket
      reply[#reply + 1] = signs[4] or ''
    end
  end
end
return reply
