-- Raises the fencing counter of a lock to a token, if the owner still holds the lock. It never lowers the counter. A Redlock uses
-- this write-back to record a token on a majority of nodes before it issues the token. If the counter is missing, this node has lost
-- it since its vote. The script does not recreate it: only a vote may, because a vote checks that the node is admitted.
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
