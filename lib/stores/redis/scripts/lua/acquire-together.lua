-- Acquires a shared lock or permits, and releases in the same step what its process held. Either half can be left out. The caller
-- joins the holders if its request fits and no place is before it in the queue. Otherwise it takes a place in the queue, unless it
-- has one. The script then serves the queue as far as there is room.
--
-- KEYS   once a call:
--        fence   the fencing counter
--        for each lock:
--        lock
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        sign    of the process, see take-place.lua
--        for each lock:
--        give    the owner that releases its hold, or '' for none
--        owner   the owner that acquires, or '' for none
--        ttl     in ms
--        kind    s for a shared lock, p for permits
--        weight  the number of permits, 1 for a reader
--        most    the limit of the caller, 0 for a reader
--        entry   of the waiter in the queue, or '' to take no place
--        number  of its place, as in turn.lua
--        placed  '1' if the place was taken before, otherwise '0'
--        calls   the number of calls of the process that wait for the lock
--        others  more owners, separated by spaces: if nobody waits, they join after the first, each with as many permits
-- reply  {'granted', gave, us, token, joined, bound, smallest}
--        {'refused', gave, us, remaining ms, value, was_gone, others, smallest}  others hold it
--        {'failed', gave, error}  no token could be minted, or the new hold not be written: the script only released the old hold
--        {error}                  nothing was changed
--        gave                     if owner is ''
--
-- token belongs to all readers; it is 0 for permits. joined is the number of `others` that joined. smallest is the smallest limit
-- that a holder of permits names. The value in a refusal names one of several holders: the first to expire, or the last if a caller
-- of this kind has to wait for all of them. remaining ms is the time of that holder, and others the number of other holders. The
-- rest is as in turn.lua.
--
-- If the owner holds the lock already, the lock was handed over to it or the command has run twice. Then the call counts as granted,
-- and the ttl restarts.
--
-- @order 3
-- @once

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local sign = ARGV[1] -- once a call
local give, owner, ttl, kind, weight, most = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local entry, number, placed, calls, others = ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]

local value = redis.pcall('GET', lock)
if type(value) == 'table' then
  if owner == '' and string.find(value.err, '^WRONGTYPE') then return -1 end
  return {value.err}
end
-- @include ask-time
local holders, asking
local leaves, renews = give, {}
local finish = string.format('%.0f', math.floor(us / 1000) + ttl)
if owner ~= '' then renews[owner] = finish end
local names = {}
local from, to, other = string.find(others, '(%S+)', 1)
while from do
  names[#names + 1] = other
  renews[other] = finish
  from, to, other = string.find(others, '(%S+)', to + 1)
end
-- @include read-holders
local is_foreign = value and not is_together -- one owner holds it, or another program wrote it
local gave = 0
if left == 1 then
  gave = 1
elseif give ~= '' and (holders or is_foreign) then
  gave = -1
end
if owner == '' and gave ~= 1 then return gave end
local is_granted = renewed[owner]
if holders then holders.is_changed = is_granted or gave == 1 end
local head = is_foreign and {} or redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
local was_gone = 0
if entry ~= '' and is_granted then
  -- @include leave-queue
elseif entry ~= '' then
  -- @include fits
  if is_foreign or head[1] or not fits then
    -- @include take-place
  end
end
local notices, is_blocked = {}, false
if head[1] or (owner == '' and not holders) then
  if entry ~= '' and not is_granted then asking = {entry = entry, finish = finish} end
  -- @include serve
  if asking and asking.problem then return give == '' and {asking.problem} or {'failed', gave, asking.problem} end
  is_granted = is_granted or (asking and asking.is_granted)
end
local holder = is_foreign and value
if not is_foreign and not holders and head[1] then holder = redis.call('GET', lock) end -- serve.lua may have granted it to one owner alone
if owner ~= '' and not is_granted and not holder and not is_blocked then
  -- @include fits
  if fits then
    local phase
    if kind == 's' and not holders then
      local count = 1
      -- @include mint
      if problem then
        redis.call('DEL', lock)
        return give == '' and {problem} or {'failed', gave, problem}
      end
      phase = token
    end
    local name, token = owner, phase
    -- @include add-holder
    is_granted = true
    if head[1] and entry ~= '' then
      -- @include leave-queue
    end
  end
end
if head[1] then
  head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
end
local joined = 0
local token -- nil: there are holders already, so add-holder.lua needs none
if is_granted then
  for _, name in ipairs(names) do
    -- @include fits
    if not renewed[name] then
      if head[1] or not fits then break end
      -- @include add-holder
    end
    joined = joined + 1
  end
end
-- @include settle
if holders and holders.problem then
  if give == '' or not holders.is_new then return {holders.problem} end
  if owner ~= '' then return {'failed', gave, holders.problem} end
end
if owner == '' then return gave end
if is_granted then
  local token = kind == 's' and string.sub(holders.head, 4) or 0
  return {'granted', gave, us, token, joined, head[2] or us, holders.smallest}
end
if holders then
  local is_first = kind == holders.kind -- a caller of another kind has to wait for all holders
  local finish, text = is_first and holders.first or holders.last, is_first and holders.first_text or holders.last_text
  return {'refused', gave, us, finish - now, holders.head .. ' ' .. text, was_gone, holders.count - 1, holders.smallest}
end
return {'refused', gave, us, redis.call('PTTL', lock), holder, was_gone, 0, 0}
