-- Acquires a lock for a waiter, and releases in the same step the lock of the same key that its process held. The waiter gets the
-- lock, with new tokens, if the lock is free or was handed over to it. Otherwise it takes a place in the queue, unless it has one. A
-- free lock always goes to the first place.
--
-- KEYS   once a call:
--        fence   the fencing counter
--        for each lock:
--        lock
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        sign    of the process, see take-place.lua
--        for each lock:
--        give    the owner that releases the lock, with its @, or '' for none
--        owner   the owner that acquires, with its @
--        ttl     in ms, not shared: calls with different ttls keep their order in the queue
--        count   how many tokens to mint: the value gets the last one
--        entry   of the waiter in the queue, or '' to take no place
--        number  of its place: the arrival time by the clock of the server in us, or '' if it is unknown
--        placed  '1' if the place was taken before, otherwise '0'
--        calls   the number of calls of the process that wait for the lock
-- reply  {'granted', gave, us, first token, last token, bound}
--        {'refused', gave, us, remaining ttl in ms, value, was_gone, others}  another owner holds it
--        {'failed', gave, error}  no token could be minted: the script only released the lock
--        {error}                  nothing was changed
--
-- gave is 1 if the lock was released, 0 if nobody held it, and -1 if another owner did. us is the time of the server. bound is the
-- number of the first place that remains in the queue, or us for an empty queue: no other waiter arrived earlier. was_gone is 1 if the
-- place was lost, otherwise 0. others is the number of other holders. If several owners hold the lock together, the value contains
-- only the last to expire. The script then also serves the places that fit, because some holders may have expired.
--
-- If the owner holds the lock already, the lock was handed over to it or the command has run twice. The lock gets new tokens in both
-- cases, because the earlier ones may be in use.
--
-- @order 3

local us, minted

local fence = KEYS[1] -- once a call
local lock, queue = KEYS[2], KEYS[3]
local sign = ARGV[1] -- once a call
local give, owner, ttl, count = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local entry, number, placed, calls = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local value = redis.pcall('GET', lock)
if type(value) == 'table' then return {value.err} end
local gave = 0
if give ~= '' and value then
  local is_given = string.sub(value, 1, -17) == give or string.sub(value, 1, -18) == give
  gave = is_given and 1 or -1
  if is_given then value = false end
end
local holders, asking
if value and string.sub(value, 1, 1) == '~' then
  local leaves, renews = '', {}
  -- @include ask-time
  -- @include read-holders
  if is_together and not holders then value = false end -- all holds have expired
end
-- @include is-mine
-- @include ask-time
local was_gone = 0
local head -- the first place, and its number
if not mine then
  local other_is_first
  if not value then
    head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    other_is_first = head[1] and head[1] ~= entry and not (number ~= '' and tonumber(number) < tonumber(head[2]))
  end
  if entry ~= '' and (value or other_is_first) then
    -- @include take-place
  end
  if other_is_first or holders then
    -- @include hand-off
    head = nil
    value = redis.call('GET', lock)
    mine = value and string.sub(value, 1, -18) == owner
  end
end
if value and not mine then
  local left_ms = redis.call('PTTL', lock)
  local besides = 0
  if holders then value, besides = holders.head .. ' ' .. holders.last_text, holders.count - 1 end
  return {'refused', gave, us, left_ms, value, was_gone, besides}
end
count = tonumber(count)
-- @include mint
if not problem then problem = redis.pcall('SET', lock, owner .. final .. '+', 'PX', ttl).err end
if entry ~= '' then
  -- @include leave-queue
end
if problem then
  redis.call('DEL', lock)
  return give == '' and {problem} or {'failed', gave, problem}
end
if not head then head = redis.pcall('ZRANGE', queue, '0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES') end
return {'granted', gave, us, token, final, head[2] or us}
