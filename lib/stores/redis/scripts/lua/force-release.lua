-- Takes a lock away from whoever holds it: it goes to the first in its queue, or to nobody. The process of the holder
-- gets a message, if it listens.
--
-- KEYS   lock
--        fence  its fencing counter
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   key    name of the lock
--        inbox  what the channels of all processes begin with
-- reply  {1, the owner that it was taken from}  '' if the lock was no string
--        0                                      nobody holds it
--        {error}
--
-- @order 1

local us

local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local key, inbox = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
if not holder then return 0 end
if type(holder) == 'table' then
  if not string.find(holder.err, '^WRONGTYPE') then return {holder.err} end
  holder = ''
else
  local TAKEN = 'taken'
  local process = string.match(holder, '^(.+)/%w+$')
  if process then redis.pcall('PUBLISH', inbox .. process, holder .. ' ' .. TAKEN .. ' ' .. key) end
end
-- @include hand-off
return {1, holder}
