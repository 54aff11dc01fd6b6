-- Takes a lock away from whoever holds it, or from one owner only: it goes to the first in its queue, or to nobody. The process
-- of the holder gets a message, if it listens.
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
-- reply  {1, the value that it had}  '' if the lock was no string
--        0                           nobody holds it, or not that owner
--        {error}
--
-- @order 1

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
if from ~= '' and (string.match(value, '^(.+)@%d+[+=]?$') or value) ~= from then return 0 end
if value ~= '' then
  local TAKEN = 'taken'
  local owner, process = string.match(value, '^((.+)/%w+)@%d+%+?$')
  if owner then
    local channel, message = inbox .. process, owner .. ' ' .. TAKEN .. ' ' .. key
    local slot_tag = string.match(fence, '{%w+}$') -- in a Cluster
    local heard = slot_tag and redis.pcall('SPUBLISH', channel .. ':' .. slot_tag, message)
    if type(heard) ~= 'number' or heard == 0 then redis.pcall('PUBLISH', channel, message) end
  end
end
-- @include hand-off
return {1, value}
