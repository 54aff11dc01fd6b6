-- Asks for a lock that several may hold together, as a reader or for permits, and gives back, in the same step, what its process
-- had of it. Either can be left out. The asker joins those who hold the lock if it fits beside them, and nobody is before it in the
-- queue; if not, it takes a place there, unless it has one. Whoever waits is served as far as there is room.
--
-- KEYS   once a call:
--        fence   the fencing counter
--        for each lock:
--        lock
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        sign    that the process gives, see take-place.lua
--        for each lock:
--        give    owner that gives back what it has, or '' for nobody
--        owner   that asks, or '' for nobody
--        ttl     in ms
--        kind    s to share the lock, p for permits
--        weight  how many permits, 1 of a reader
--        most    the limit that it names, 0 of a reader
--        entry   of the waiter in the queue, or '' to take no place
--        number  of its place, as in turn.lua
--        placed  '1' when the place was taken before, else '0'
--        calls   how many calls of the process wait for the lock
--        others  further owners, separated by spaces, who join behind the first, each with as many permits, if nobody waits
-- reply  {'granted', gave, us, token, others, bound, smallest}
--        {'refused', gave, us, ms that are left, value, was_gone, besides, smallest}  others hold it
--        {'failed', gave, error}  no token could be minted: it was only given back
--        {error}                  nothing was changed
--        gave                     where nobody asks
--
-- token is that of all readers, 0 of permits. others is how many of them have joined. smallest is the smallest limit that a holder
-- of permits names. In a refusal the value has, of several holders, only the one whose time is over first, or last for a kind that
-- has to wait for all of them, and for how long that still is; besides
-- is how many more hold it. The rest is as in turn.lua.
--
-- An owner that holds it already was handed it over, or the command runs twice: it counts as granted, and its ttl starts anew.
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
local crowd, asking
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
-- @include read-crowd
local is_foreign = value and not is_crowd -- it is held alone, or by another program
local gave = 0
if left == 1 then
  gave = 1
elseif give ~= '' and (crowd or is_foreign) then
  gave = -1
end
if owner == '' and gave ~= 1 then return gave end
local is_granted = renewed[owner]
if crowd then crowd.is_changed = is_granted or gave == 1 end
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
if head[1] or (owner == '' and not crowd) then
  if entry ~= '' and not is_granted then asking = {entry = entry, finish = finish} end
  -- @include serve
  if asking and asking.problem then return give == '' and {asking.problem} or {'failed', gave, asking.problem} end
  is_granted = is_granted or (asking and asking.is_granted)
end
local holder = is_foreign and value
if not is_foreign and not crowd and head[1] then holder = redis.call('GET', lock) end -- the first may have it alone now
if owner ~= '' and not is_granted and not holder and not is_blocked then
  -- @include fits
  if fits then
    local phase
    if kind == 's' and not crowd then
      local count = 1
      -- @include mint
      if problem then
        redis.call('DEL', lock)
        return give == '' and {problem} or {'failed', gave, problem}
      end
      phase = token
    end
    local name, token = owner, phase
    -- @include join-crowd
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
local token -- of a crowd that begins: this one has begun
if is_granted then
  for _, name in ipairs(names) do
    -- @include fits
    if not renewed[name] then
      if head[1] or not fits then break end
      -- @include join-crowd
    end
    joined = joined + 1
  end
end
-- @include settle
if crowd and crowd.problem then return {crowd.problem} end
if owner == '' then return gave end
if is_granted then
  local token = kind == 's' and string.sub(crowd.head, 4) or 0
  return {'granted', gave, us, token, joined, head[2] or us, crowd.smallest}
end
if crowd then
  local is_first = kind == crowd.kind -- another kind has to wait for all of them
  local finish, text = is_first and crowd.first or crowd.last, is_first and crowd.first_text or crowd.last_text
  return {'refused', gave, us, finish - now, crowd.head .. ' ' .. text, was_gone, crowd.count - 1, crowd.smallest}
end
return {'refused', gave, us, redis.call('PTTL', lock), holder, was_gone, 0, 0}
