-- Raises the fencing counter of a lock that its owner still holds to a token, and never lowers it: the write-back by
-- which a Redlock makes a token known to a majority before it is issued. A counter that is absent was lost since this node
-- voted, and is not made again: that is left to the votes, which ask whether the node may vote.
--
-- KEYS   lock
--        fence  the fencing counter of its shard
-- ARGV   owner  with its @
--        token  16 digits
-- reply  1        the counter is at or above the token, and this node has not voted for a higher one
--        0        not so, or this owner does not hold the lock
--        {error}
--
-- @order 2

local lock, fence = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]

local value = redis.pcall('GET', lock)
if not value then return 0 end
if type(value) == 'table' then return {value.err} end
local vote, flag = string.match(value, '@(%d+)(%+?)$')
if not vote or string.sub(value, 1, -17 - #flag) ~= owner or vote > token then return 0 end
local counter = redis.pcall('GET', fence)
if not counter then return 0 end
if type(counter) == 'table' then return {'ERR the fencing counter ' .. fence .. ': ' .. counter.err} end
local set = {}
if (tonumber(counter) or 0) < tonumber(token) then set = redis.pcall('SET', fence, token) end
if not set.err and vote ~= token then set = redis.pcall('SET', lock, owner .. token .. flag, 'KEEPTTL') end
return set.err and {set.err} or 1
