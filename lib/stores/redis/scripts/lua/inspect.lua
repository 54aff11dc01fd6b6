-- Reads a lock, and the first places in its queue.
--
-- KEYS   lock
--        queue   its waiters, a sorted set in the order of their arrival
--        behind  the number of calls that wait in the holder's process, see extend-and-report.lua
-- reply  {remaining ttl in ms, value, time of the server in us, calls, ticket, score, ...}
--        0        nobody holds it
--        {error}
--
-- calls is the number that the current holder recorded, or ''. Tickets come in the order of their places. Each score is the score of
-- the `n` sign of that process, see take-place.lua, or '' if there is none. Places of silent processes (see serve.lua) and of later
-- versions are left out. A user without the right to read the queue gets no places.
--
-- @order 4
-- @locks-per-call 5  each can have a hundred places, and Redis should not work for more than a millisecond

local SILENT_US = 2000000
local MAX_PLACES = '100'

local lock, queue, behind = KEYS[1], KEYS[2], KEYS[3]

local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local owner, calls = string.match(tostring(redis.pcall('GET', behind)), '^(.+@)(%d+)$')
-- @include is-mine
local reply = {redis.call('PTTL', lock), value, us, mine and calls or ''}
if string.find(string.sub(value, -17), '^@%d+$') then return reply end -- the queue is empty
local latest = -(tonumber(redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')[2]) or 0)
for _, entry in ipairs(redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', MAX_PLACES)) do
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
