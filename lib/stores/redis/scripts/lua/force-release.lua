-- Takes a lock away from whoever holds it, or from one owner only: it goes to the first in its queue, or to nobody. The process
-- of each holder gets a message, if it listens.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        inbox  what the channels of all processes begin with
--        for each lock:
--        key    name of the lock
--        from   the owner that it is taken from; '' for whoever holds it
-- reply  {'alone', the value that it had}  '' if the lock was no string
--        {'together', owner, ...}          it was held together by others, or with others, and taken from these
--        0                                 nobody holds it, or not that owner
--        {error}
--
-- @order 1
-- @once

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local inbox = ARGV[1] -- once a call
local key, from = ARGV[2], ARGV[3]

local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then
  if not string.find(value.err, '^WRONGTYPE') then return {value.err} end
  value = ''
end
local taken -- the owners that it is taken from
local reply = {'alone', value}
local crowd, asking
if string.sub(value, 1, 1) == '~' then
  local leaves, renews = from, {}
  -- @include ask-time
  -- @include read-crowd
  if is_crowd and not crowd and left ~= 1 then return 0 end -- their time is over
  if is_crowd then
    taken, reply = {}, {'together'}
    if left == 1 then taken[1] = from end
    if from == '' then
      for _, holder in ipairs(crowd.texts) do
        local finish, name = string.match(holder, '^(%d+) %d+ %d+ (%S+)$')
        if tonumber(finish) >= now then taken[#taken + 1] = name end
      end
      crowd = nil
    end
    if not taken[1] then return 0 end
    if crowd then crowd.is_changed = true end
  end
end
if not taken then
  if from ~= '' and (string.match(value, '^(.+)@%d+[+=]?$') or value) ~= from then return 0 end
  taken = {string.match(value, '^(.+)@%d+%+?$')}
end
for _, owner in ipairs(taken) do
  local TAKEN = 'taken'
  if reply[1] == 'together' then reply[#reply + 1] = owner end
  local process = string.match(owner, '^(.+)/[^/]+$')
  if process then
    local channel, message = inbox .. process, owner .. ' ' .. TAKEN .. ' ' .. key
    local slot_tag = string.match(fence, '{%w+}$') -- in a Cluster
    local heard = slot_tag and redis.pcall('SPUBLISH', channel .. ':' .. slot_tag, message)
    if type(heard) ~= 'number' or heard == 0 then redis.pcall('PUBLISH', channel, message) end
  end
end
-- @include hand-off
if crowd and crowd.problem and not crowd.is_new then return {crowd.problem} end
return reply
