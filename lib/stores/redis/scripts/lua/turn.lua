-- Asks for a lock on behalf of a waiter, and gives back, in the same step, the lock that its process had of the same key. The
-- waiter gets the lock if it is free, or was handed over to it, and mints its tokens; if not, it takes a place in the queue,
-- unless it has one. A lock that is free goes to the first place, whoever asks.
--
-- KEYS   once a call:
--        fence   the fencing counter
--        for each lock:
--        lock
--        queue   its waiters, a sorted set in the order of their arrival
-- ARGV   once a call:
--        sign    that the process gives, see take-place.lua
--        for each lock:
--        give    owner that gives the lock back, with its @, or '' for nobody
--        owner   that asks, with its @
--        ttl     in ms, not shared: calls with different ttls keep their order in the queue
--        count   how many tokens to mint: the value gets the last of them
--        entry   of the waiter in the queue, or '' to take no place
--        number  of its place: when it came, by the clock of the server in us, or '' where that is not known
--        placed  '1' when the place was taken before, else '0'
--        calls   how many calls of the process wait for the lock
-- reply  {'granted', gave, us, first token, last token, bound}
--        {'refused', gave, us, ttl that is left in ms, value, was_gone, besides}  another owner holds it
--        {'failed', gave, error}  no token could be minted: only the lock was given back
--        {error}                  nothing was changed
--
-- gave is 1 when the lock was given back, 0 when nobody held it, -1 when another owner did. us is the time of the server. bound is
-- the number of the first place that is left in the queue, or us if there is none: nobody who waits elsewhere came earlier.
-- was_gone is 1 when the place was lost, else 0. besides is how many more hold it. If several hold the lock together, the value is that with the last of them alone, and
-- those in front are served who fit beside them: the time of some holders may be over.
--
-- A lock that the owner holds already was handed over to it, or the command runs twice: either way it gets new tokens, as
-- those that it was granted before may be in use.
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
local crowd, asking
if value and string.sub(value, 1, 1) == '~' then
  local leaves, renews = '', {}
  -- @include ask-time
  -- @include read-crowd
  if is_crowd and not crowd then value = false end -- their time is over
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
  if other_is_first or crowd then
    -- @include hand-off
    head = nil
    value = redis.call('GET', lock)
    mine = value and string.sub(value, 1, -18) == owner
  end
end
if value and not mine then
  local left_ms = redis.call('PTTL', lock)
  local besides = 0
  if crowd then value, besides = crowd.head .. ' ' .. crowd.last_text, crowd.count - 1 end
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
