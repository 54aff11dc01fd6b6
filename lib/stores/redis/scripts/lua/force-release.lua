-- Takes a lock away from all its holders, or from one owner only. The lock goes to the first place in its queue, or becomes free. The
-- process of each holder gets a message, if it listens.
--
-- KEYS   once a call:
--        fence  the fencing counter
--        for each lock:
--        lock
--        queue  its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        inbox  the beginning of the channel name of every process
--        for each lock:
--        key    the key of the lock
--        from   the owner to take it from, or '' for any owner
-- reply  {'alone', its value}       '' if the value was not a string
--        {'together', owner, ...}   several owners could hold it, and lost it
--        0                          nobody holds it, or not that owner
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
local taken -- the owners that lose it
local reply = {'alone', value}
local holders, asking
if string.sub(value, 1, 1) == '~' then
  local leaves, renews = from, {}
  -- @include ask-time
  -- @include read-holders
  if is_together and not holders and left ~= 1 then return 0 end -- all holds have expired
  if is_together then
    taken, reply = {}, {'together'}
    if left == 1 then taken[1] = from end
    if from == '' then
      for _, holder in ipairs(holders.texts) do
        local finish, name = string.match(holder, '^(%d+) %d+ %d+ (%S+)$')
        if tonumber(finish) >= now then taken[#taken + 1] = name end
      end
      holders = nil
    end
    if not taken[1] then return 0 end
    if holders then holders.is_changed = true end
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
if holders and holders.problem and not holders.is_new then return {holders.problem} end
return reply
